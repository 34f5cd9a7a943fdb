"""Rules for repetition: repeated texts and calls, agents that only answer each other, turns without a result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lemming.journal_tools.provenance.write_log import get_payload_text
from lemming.journal_tools.recorded_tick import RecordedTurn, ToolUse
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.messages import OutboxEntry
from lemming.libraries.wording import format_count
from lemming.queries.findings.finding_scan import FindingScan, make_finding, quote_start

Action = tuple[str, ...]
"""Something said or done: equal where it is the same, in other words as capitals, spaces and signs go."""

_NON_WORDS = re.compile(r"[\W_]+")
_OUTBOX = "/outbox/"
_FAILURES = ("failed", "not_found", "denied", "invalid_args", "timed_out", "refused")
"""Outcomes of calls that a person may have to do something about."""
_ABOUT = ("reply_to", "hands_on", "cancels")


def normalise_text(text: str) -> str:
    """Return a text in the form used for comparison: its words, without case, spacing or punctuation.

    >>> normalise_text("  All is   WELL!! ")
    'all is well'
    """
    return _NON_WORDS.sub(" ", text).strip().casefold() or text.strip()


def entry_action(entry: OutboxEntry) -> Action:
    """Return an entry as an action: its text, targets and request, so equal answers to two requests differ."""
    payload = entry.payload
    about = f"{[payload.get(key) for key in _ABOUT]}"
    text = normalise_text(get_payload_text(payload))
    return "said", entry.kind, text, ",".join(sorted(entry.targets)), about


def call_action(tool_use: ToolUse) -> Action:
    """Return a tool call with its output as an action: a repeated call with a new output is no repetition."""
    return ("called", tool_use.tool, dump_compact(tool_use.args).decode(), f"{tool_use.success}", tool_use.output)


def entry_actions(turn: RecordedTurn) -> dict[Action, OutboxEntry]:
    """Return the entries of a turn with text, by action."""
    return {action: entry for entry in turn.entries if (action := entry_action(entry))[2]}


def call_actions(turn: RecordedTurn) -> dict[Action, ToolUse]:
    """Return the finished calls of a turn, by action."""
    return {call_action(tool_use): tool_use for tool_use in turn.tools if tool_use.success is not None}


def file_actions(turn: RecordedTurn) -> set[Action]:
    """Return the files and memories a turn wrote, with their digests; entries are covered by `entry_actions`."""
    files = turn.report.files if turn.report else []
    file_writes = {("left", file["path"], file["sha256"]) for file in files if _OUTBOX not in file["path"]}
    early_paths = turn.report.written_ahead if turn.report else []
    return file_writes | {("left", path, f"{turn.tick}") for path in early_paths}


def first_actions(turns: Iterable[RecordedTurn]) -> list[set[Action]]:
    """Return the new actions of each of an agent's turns, in order: entries, files and calls not seen before."""
    previous: set[Action] = set()
    new_actions = []
    for turn in turns:
        actions = {*entry_actions(turn), *call_actions(turn), *file_actions(turn)}
        new_actions.append(actions - previous)
        previous |= actions
    return new_actions


TurnsByAction = dict[Action, list[int]]
"""The numbers of an agent's turns by statement or call."""


def find_repetition(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents that repeat the same entry, or repeat the same call without any gain."""
    for agent, turns in scan.by_agent.items():
        turns_by_action = {**_group_entries(scan, turns), **_group_repeated_calls(turns)}
        dense_turns = {
            action: _find_dense_turns(numbers, scan.settings.repeats) for action, numbers in turns_by_action.items()
        }
        action = max(dense_turns, key=lambda candidate: len(dense_turns[candidate]), default=None)
        if action is None or not dense_turns[action]:
            continue
        repeated_turns = [turns[number] for number in dense_turns[action]]
        count = format_count(len(repeated_turns), "turn")
        yield make_finding(
            (agent,),
            f"{agent} {_describe_action(action, repeated_turns[-1])} in {count}",
            f"{_suggest_rest(scan, agent)}add to its instructions what to do when nothing is new",
            repeated_turns,
        )


def _suggest_rest(scan: FindingScan, agent: str) -> str:
    """Return the advice to wake an agent by changes only, or an empty text if its resume says so already."""
    is_always_woken = agent in scan.agents and scan.agents[agent].schedule.wake == "always"
    return f'set "wake": "changed" in the schedule of {agent}, or ' if is_always_woken else ""


def _group_entries(scan: FindingScan, turns: Sequence[RecordedTurn]) -> TurnsByAction:
    """Return the turns of each entry action; an answered request may be repeated."""
    turns_by_action: TurnsByAction = {}
    for number, turn in enumerate(turns):
        for action, entry in entry_actions(turn).items():
            request = scan.requests.by_identity.get(entry.identity) if entry.kind == "request" else None
            if request is None or request.end != "answered":
                turns_by_action.setdefault(action, []).append(number)
    return turns_by_action


def _group_repeated_calls(turns: Sequence[RecordedTurn]) -> TurnsByAction:
    """Return the turns of each call with an unchanged output, in turns without any other new action."""
    turns_by_action: TurnsByAction = {}
    new_actions = first_actions(turns)
    for number, turn in enumerate(turns):
        for action in call_actions(turn):
            if action in new_actions[number] or not new_actions[number]:
                turns_by_action.setdefault(action, []).append(number)
    return turns_by_action


def _find_dense_turns(numbers: list[int], min_count: int) -> list[int]:
    """Return the turns in which at least `min_count` repetitions lie close together; rare repetitions are
    harmless.

    >>> _find_dense_turns([0, 2, 4, 30], 3), _find_dense_turns([0, 12, 24], 3)
    ([0, 2, 4], [])
    """
    dense: set[int] = set()
    for start in range(len(numbers) - min_count + 1):
        window = numbers[start : start + min_count]
        if window[-1] - window[0] < 2 * min_count:
            dense.update(window)
    return sorted(dense)


def _describe_action(action: Action, turn: RecordedTurn) -> str:
    """Return a description of the repeated action, with the original text of the turn quoted."""
    if action[0] == "called":
        return f"called {action[1]} {quote_start(action[2])} with the same result"
    to = f" to {action[3].replace(',', ', ')}" if action[3] else ""
    return f"wrote{to} the same {action[1]}, {quote_start(get_payload_text(entry_actions(turn)[action].payload))},"


def find_ping_pong(scan: FindingScan) -> Iterator[Problem]:
    """Yield pairs of agents that only answer each other, without a third agent, a file or a memory in between."""
    longest: dict[frozenset[str], list[RecordedTurn]] = {}
    current: dict[frozenset[str], list[RecordedTurn]] = {}
    for turn in scan.turns:
        partner = _find_sole_partner(scan, turn)
        if partner is None and not (turn.entries or turn.tools or file_actions(turn) or turn.visible_entry_ids):
            continue
        pair = frozenset((turn.agent, partner)) if partner else None
        for stale_pair in [known_pair for known_pair in current if turn.agent in known_pair and known_pair != pair]:
            del current[stale_pair]
        if pair:
            exchange = current.get(pair, [])
            current[pair] = [*exchange, turn] if exchange and exchange[-1].agent == partner else [turn]
            longest[pair] = max(longest.get(pair, []), current[pair], key=len)
    for pair_agents, turns in longest.items():
        if len(turns) >= 2 * scan.settings.ping_pong:
            first, second = sorted(pair_agents)
            count = format_count(len(turns), "time")
            yield make_finding(
                (first, second),
                f"{first} and {second} have answered each other {count} in a row, without any other result",
                'add to their instructions which of them has the last word, and set "wake": "addressed"',
                turns,
            )


def _find_sole_partner(scan: FindingScan, turn: RecordedTurn) -> str | None:
    """Return the only agent a turn answers, or None if the turn does anything else."""
    if not turn.entries or turn.tools or file_actions(turn) or not turn.visible_entry_ids:
        return None
    authors = {scan.authors_by_entry.get(identity, "") for identity in turn.visible_entry_ids}
    if len(authors) != 1 or not scan.takes_turns(author := authors.pop()) or author == turn.agent:
        return None
    request = scan.find_turn_request(turn)
    if request is not None and scan.requests.get_root(request).asker not in (author, turn.agent):
        return None  # another agent waits for it
    return author


def find_idle_work(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents that have answered, receive nothing new, and still take turns without a result."""
    for agent, turns in scan.by_agent.items():
        runs = [run for run in _find_idle_runs(turns) if run.follows_final_answer]
        run = max(runs, key=lambda run: len(run.turns), default=None)
        if run and run.productive_turn and len(run.turns) >= scan.settings.works_on:
            answered = f"{agent} answered in tick {run.productive_turn.tick}"
            count = format_count(len(run.turns), "turn")
            yield make_finding(
                (agent,),
                f"{answered} and then took {count} that cost credits without a result",
                f'set "wake": "addressed" in the schedule of {agent}',
                [run.productive_turn, *run.turns],
                tick=run.turns[0].tick,
            )


def find_stalled_agents(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents with consecutive turns that cost credits and produce no result."""
    for agent, turns in scan.by_agent.items():
        run = max(_find_idle_runs(turns), key=lambda run: len(run.turns), default=None)
        if run is None or len(run.turns) < scan.settings.no_progress:
            continue
        if run.follows_final_answer and "works_on" not in scan.settings.off:
            continue  # which tells of it
        credits = sum(turn.report.credits for turn in run.turns if turn.report)
        spent = f"{agent} spent {credits:.10g} credits in {format_count(len(run.turns), 'turn')} in a row"
        look = f"see the last turn with `lemming tick {run.turns[-1].tick}`"
        yield make_finding(
            (agent,),
            f"{spent} that left no entry, no file and no memory, and learned nothing new",
            f"{look}; {_suggest_rest(scan, agent)}run `lemming pause {agent}`",
            run.turns,
        )


def find_failing_calls(scan: FindingScan) -> Iterator[Problem]:
    """Yield agents whose calls of a tool fail alike, turn after turn, each with the longest run."""
    for agent, turns in scan.by_agent.items():
        run = max(_find_failing_runs(turns), key=len, default={})
        if len(run) < scan.settings.failing_calls:
            continue
        last_turn, last_call = [*run.items()][-1]
        calls = _group_repeated_calls(turns)
        repeated = {action[:2] for action, numbers in calls.items() if _find_dense_turns(numbers, len(run))}
        if ("called", last_call.tool) in repeated and "repeats" not in scan.settings.off:
            continue
        count, code = format_count(len(run), "turn"), f" ({last_call.code})" if last_call.code else ""
        failed = f"{agent} called {last_call.tool} in {count} in a row, and each call failed{code}"
        yield make_finding(
            (agent,),
            f"{failed}: {quote_start(last_call.output)}",
            f"see the last one with `lemming tick {turns[last_turn].tick}`; change the permissions or instructions of {agent},"
            " or the tool",
            [turns[number] for number in run],
        )


def _find_failing_runs(turns: Sequence[RecordedTurn]) -> list[dict[int, ToolUse]]:
    """Return runs of turns in which each call of a tool failed alike. A run has the turns' numbers and last calls."""
    runs, current = list[dict[int, ToolUse]](), dict[tuple[str, str], dict[int, ToolUse]]()
    for number, turn in enumerate(turns):
        if turn.status == "skipped":
            continue
        outcomes: dict[str, dict[str, ToolUse]] = {}
        for tool_use in turn.tools:
            outcomes.setdefault(tool_use.tool, {})[tool_use.outcome] = tool_use
        failures = {
            (tool, outcome): tool_use
            for tool, uses in outcomes.items()
            for outcome, tool_use in uses.items()
            if len(uses) == 1 and outcome in _FAILURES
        }
        current = {key: current.get(key, {}) for key in failures}
        for key, tool_use in failures.items():
            runs += [] if current[key] else [current[key]]
            current[key][number] = tool_use
    return runs


@dataclass
class _IdleRun:
    """Consecutive turns with a cost and no result, and the productive turn before."""

    productive_turn: RecordedTurn | None
    turns: list[RecordedTurn]

    @property
    def follows_final_answer(self) -> bool:
        """True if the run follows an answer and nothing new arrived."""
        has_answered = self.productive_turn and any(entry.kind == "response" for entry in self.productive_turn.entries)
        return bool(has_answered) and not any(turn.visible_entry_ids for turn in self.turns)


def _find_idle_runs(turns: Sequence[RecordedTurn]) -> list[_IdleRun]:
    runs, run = list[_IdleRun](), _IdleRun(None, [])
    for turn, new_actions in zip(turns, first_actions(turns), strict=True):
        report = turn.report
        has_cost = report is not None and (report.credits > 0 or bool(report.cost_usd)) and report.end != "waits"
        if has_cost and not (turn.entries or file_actions(turn) or new_actions):
            if not run.turns:
                runs.append(run)
            run.turns.append(turn)
        elif turn.status != "skipped":
            run = _IdleRun(turn, [])
    return runs
