"""The view of a tick: the plan with reasons, turns as time bars, a complete turn, the strip of ticks."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from lemming.journal_tools.provenance.prompt_parser import parse_prompt
from lemming.journal_tools.recorded_tick import RecordedTick, RecordedTurn, load_tick_record, make_quiet_tick
from lemming.journal_tools.tick_ranges import explain_missing_journal
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ToolFinished, TurnStarted
from lemming.kernel.journal.turn_report import USUAL_ENDS
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.operations.engine_lock import find_running_engine
from lemming.operations.unfinished_turns import load_unfinished_turns
from lemming.queries.sentences import describe_call, describe_effects, describe_payload, entry_text
from lemming.read_model.journal_ticks import started_journals
from lemming.read_model.tick_facts import TickFacts
from lemming.read_model.tick_queries import load_newest_ticks

MAX_ROWS = 100
MAX_FILE_CHARS = 20_000
MAX_CLOCK_SKEW_MS = 50
"""An answer's moment is read from one clock and how long it took from another."""


def build_tick_view(
    org: OrgPath, *, number: int | None = None, agent: str = "", first: int = 0, around: int = 0
) -> dict[str, Any]:
    """Return a tick (by default the newest) with a row for each turn, at most 100 rows from `first` on.

    With `agent`, `turn` is the agent's complete turn: prompt, answers, tool results, files; or `no_turn`
    explains the missing turn. With `around`, `strip` is the surrounding stretch of `around` ticks. Raises
    `UsageError` for an unknown tick and `CorruptState` for a damaged journal.
    """
    org = Organisation.from_path(org)
    if number is not None and number < 0:
        raise UsageError(f"tick {number} does not exist", hint="name a tick from 0 on")
    record = load_recorded_tick(org, number)
    rows = record.turn_keys
    turn = record.find_turn(agent) if agent else None
    return {
        **build_plan_section(record),
        "state": _describe_state(org, record),
        "next_tick": load_tick(org),
        "first": first,
        "timing": build_timing(record, rows[first : first + MAX_ROWS]),
        "rows": [_build_turn_row(record, key) for key in rows[first : first + MAX_ROWS]],
        "turn": turn_to_full_json(turn, record) if turn else None,
        "no_turn": _explain_missing_turn(record, agent) if agent and not turn else "",
        **({"strip": _load_tick_strip(org, record.tick, around)} if around > 0 else {}),
    }


def _load_tick_strip(org: Organisation, number: int, count: int) -> list[dict[str, Any]]:
    """Return the aligned stretch of `count` ticks around a tick, and the first tick after the stretch."""
    end_tick = number - number % count + count + 1
    strip: list[dict[str, Any]] = build_ticks_view(org, before=end_tick, count=count + 1)["ticks"]
    return strip


def _explain_missing_turn(record: RecordedTick, agent: str) -> str:
    plan = record.plan
    reason = plan.skipped.get(agent) or plan.broken.get(agent) or ("not due" if agent in plan.not_due else "")
    return f"{agent[:80]} took no turn in tick {record.tick}: {reason or 'it was not there'}"


def turn_to_full_json(turn: RecordedTurn, record: RecordedTick) -> dict[str, Any]:
    """Return a turn with its prompts, its answers, and the texts of the small files it wrote."""
    small_files = {path: file.content for path, file in turn.writes.items() if len(file.content) <= MAX_FILE_CHARS}
    return {
        **turn_to_json(turn, record, prompts=True),
        "effects": [effect._asdict() for effect in describe_effects(turn)],
        "contents": {path: content.decode("utf-8", "replace") for path, content in small_files.items()},
    }


def load_recorded_tick(org: OrgPath, number: int | None) -> RecordedTick:
    """Load a tick (by default the newest with a journal), including a quiet tick without turns."""
    if number is None:
        newest = started_journals(org, 1)
        if not newest:
            raise UsageError("no tick has run yet", hint="run a tick with `lemming run-once`")
        number = newest[-1]
    try:
        return load_tick_record(org, number)
    except UsageError:  # it has no journal
        if explain_missing_journal(org, number) != "quiet":
            raise
    turns = sorted(load_unfinished_turns(org, until=number).values(), key=lambda turn: turn.agent)
    skipped = {turn.agent: turn.reason for turn in turns if turn.status == "skipped"}
    broken = {turn.agent: turn.reason for turn in turns if (turn.status, turn.error) == ("failed", "ConfigError")}
    return make_quiet_tick(number, skipped, broken)


def build_plan_section(record: RecordedTick) -> dict[str, Any]:
    """Return the plan of a tick, and the totals of its turns."""
    return {
        "tick": record.tick,
        "at": record.start_record.at,
        "is_committed": record.commit_record is not None,
        "engine_starts": record.engine_starts,
        "order": record.plan.order,
        "not_due": record.plan.not_due,
        "skipped": record.plan.skipped,
        "broken": record.plan.broken,
        "expired": record.expired,
        "expired_unread": record.unread,
        "totals": count_turns(record),
    }


def count_turns(record: RecordedTick) -> dict[str, Any]:
    """Return the totals of a tick as `run-once` prints them: people and pauses are no skipped turns."""
    totals = record.totals
    return {**totals, "skipped": totals["skipped"] - len(record.plan.skipped)}


def turn_to_json(turn: RecordedTurn, record: RecordedTick, *, prompts: bool) -> dict[str, Any]:
    """Return a turn as JSON values."""
    report = turn.report
    calls = [(use, use.args if isinstance(use.args, dict) else {}) for use in turn.tools]
    return {
        "agent": turn.agent,
        **({"turn": turn.turn} if turn.turn else {}),
        "status": turn.status,
        "end": (report.end or USUAL_ENDS[report.status]) if report else "",
        "reason": report.reason if report else "",
        "error": report.error if report else "",
        "attempts": turn.attempts,
        "stops": turn.stops,
        "request": report.request if report else "",
        "saw": [vars(seen_entry) for seen_entry in parse_prompt(turn, record.plan.all_agents).entries],
        "results": turn.visible_results,
        "prompt_chars": sum(len(message["content"]) for message in turn.prompt),
        **({"prompt": turn.prompt} if prompts else {}),
        "answers": [vars(call) for call in turn.calls],
        "tools": [{**vars(use), "wish": describe_call(use.tool, arguments)} for use, arguments in calls],
        "entries": [
            {**entry.as_json(), "says": entry_text(entry.payload) or describe_payload(entry.payload)}
            for entry in turn.entries
        ],
        "memory": turn.memory,
        "files": [
            {"path": path, "sha256": file.digest, "bytes": len(file.content)} for path, file in turn.writes.items()
        ],
        "removed": report.removed if report else [],
        "remarks": report.remarks if report else [],
        "verdicts": report.verdicts if report else [],
        "judged": report.judged if report else None,
        "notes": report.notes if report else "",
        "calls": len(turn.calls),
        "credits": sum(call.credits for call in turn.calls),
        "cost_usd": report.cost_usd if report else None,
        "input_tokens": sum(call.input_tokens for call in turn.calls),
        "output_tokens": sum(call.output_tokens for call in turn.calls),
        "duration_ms": sum(call.duration_ms for call in turn.calls),
    }


def _describe_state(org: Organisation, record: RecordedTick) -> str:
    if record.engine_starts == 0:
        return "quiet"
    if record.commit_record is not None:
        return "committed"
    return "running" if find_running_engine(org) else "interrupted"


def _build_turn_row(record: RecordedTick, name: str) -> dict[str, Any]:
    """Return a turn as a table row; only the final records of the turn are parsed. `name`: the turn key."""
    ended = record.ended.get(name)
    report = ended.report if ended else None
    tools = [line for line in record.turn_records(name) if isinstance(line, ToolFinished)]
    answers = [line for line in record.turn_records(name) if isinstance(line, ModelReplied)]
    return {
        "agent": name,
        "status": report.status if report else ("working" if record.turn_records(name) else "not begun"),
        "end": (report.end or USUAL_ENDS[report.status]) if report else "",
        "reason": report.reason if report else "",
        "entries": [dict(entry) for entry in report.entries] if report else [],
        "saw": len(record.started[name].entries) if name in record.started else 0,
        "calls": report.calls if report else len(answers),
        "tools": len(tools),
        "tools_failed": sum(tool.success is False and tool.outcome not in ("pending", "deferred") for tool in tools),
        "verdicts": len(report.verdicts) if report else 0,
        "memories": len(report.memory) if report else 0,
        "files": len(report.files) if report else 0,
        "credits": report.credits if report else sum(answer.credits for answer in answers),
        "cost_usd": report.cost_usd if report else None,
        "input_tokens": report.input_tokens if report else sum(answer.input_tokens for answer in answers),
        "output_tokens": report.output_tokens if report else sum(answer.output_tokens for answer in answers),
    }


def build_timing(record: RecordedTick, names: list[str]) -> dict[str, Any]:
    """Return the bars of each turn: times of model calls and answers, in milliseconds after the start of the tick.

    Only answers and failed calls carry times. `is_exact`: the times were measured in this tick, without a restart.
    Times of an earlier recording or of an interrupted tick are unusable; their bars are stacked by duration instead. A
    bar without an end belongs to a running turn.
    """
    began = parse_timestamp(record.start_record.at) if record.start_record.at else None
    answers = [answer for answer in record.answers.values() if isinstance(answer, ModelReplied)]
    is_exact = began is not None and record.engine_starts < 2
    is_exact = is_exact and all(began and _measure_answer(began, answer)[0] >= -MAX_CLOCK_SKEW_MS for answer in answers)
    bars = _measure_bars(record, names, began) if is_exact and began else _stack_bars(record, names)
    ends = [bar["end_ms"] for turn_bars in bars.values() for bar in turn_bars if bar["end_ms"] is not None]
    return {"is_exact": is_exact, "bars": bars, "end_ms": max(ends, default=0)}


def _measure_answer(began: datetime, answer: ModelReplied) -> tuple[int, int]:
    """Return the begin and the end of a call, in milliseconds after the start of the tick."""
    end = round((parse_timestamp(answer.at) - began).total_seconds() * 1000)
    return end - answer.duration_ms, end


def _measure_bars(record: RecordedTick, names: list[str], began: datetime) -> dict[str, list[dict[str, Any]]]:
    bars: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    latest, starts = 0, dict[str, int]()  # a turn cannot begin before the previous record of its journal
    for step in record.records:
        if isinstance(step, ModelReplied):
            begin, end = _measure_answer(began, step)
            starts[step.turn_key], latest = end, max(latest, end)
            if step.turn_key in bars:
                bars[step.turn_key].append(_make_bar(max(begin, 0), end))
        elif isinstance(step, ModelFailed):
            begin = starts.get(step.turn_key, latest)
            starts[step.turn_key] = begin + step.duration_ms
            if step.turn_key in bars:
                bars[step.turn_key].append(_make_bar(begin, begin + step.duration_ms, is_lost=True))
        elif isinstance(step, TurnStarted):
            starts[step.turn_key] = latest
    for name in bars.keys() & starts.keys() - record.ended.keys():
        bars[name].append(_make_bar(starts[name], None))
    return bars


def _stack_bars(record: RecordedTick, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    bars: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    begin = 0
    for step in record.records:
        if isinstance(step, ModelReplied | ModelFailed) and step.turn_key in bars:
            is_lost = isinstance(step, ModelFailed)
            bars[step.turn_key].append(_make_bar(begin, begin + max(step.duration_ms, 0), is_lost=is_lost))
            begin += max(step.duration_ms, 0)
    return bars


def _make_bar(begin_ms: int, end_ms: int | None, *, is_lost: bool = False) -> dict[str, Any]:
    return {"begin_ms": begin_ms, "end_ms": end_ms, **({"is_lost": True} if is_lost else {})}


DEFAULT_STRIP_TICKS = 60
MAX_STRIP_TICKS = 500
_STATUSES_BY_SEVERITY = ("failed", "waiting", "done", "skipped")


def build_ticks_view(org: OrgPath, *, before: int | None = None, count: int = DEFAULT_STRIP_TICKS) -> dict[str, Any]:
    """Return the newest ticks with a journal, oldest first; with `before`, ticks before this tick.

    `older` is True if earlier ticks exist; pass the number of the first returned tick as `before` to get them.
    `quiet_before` is the number of ticks directly before the tick without any turn, or with a removed journal.
    """
    org, count = Organisation.from_path(org), min(max(count, 1), MAX_STRIP_TICKS)
    newest = load_newest_ticks(org, count + 1, before=before)
    is_running = find_running_engine(org) is not None
    return {
        "next_tick": load_tick(org),
        "is_running": is_running,
        "older": len(newest) > count,
        "ticks": [_tick_to_json(org, facts, is_running) for facts in newest[-count:]],
    }


def _tick_to_json(org: Organisation, facts: TickFacts, is_running: bool) -> dict[str, Any]:
    totals, problem = facts.totals, facts.problem
    status = "committed" if totals else "running" if is_running else "interrupted"
    if not (totals or problem):
        try:
            totals = load_tick_record(org, facts.tick).totals
        except (CorruptState, UsageError) as error:
            problem = str(error)
    reports = (turn.report for turn in facts.turns.values() if turn.report)
    ends = Counter(f"{report['status']}:{report.get('end') or USUAL_ENDS[report['status']]}" for report in reports)
    return {
        "tick": facts.tick,
        "at": facts.at,
        "status": "damaged" if problem else status,
        "worst": next((status for status in _STATUSES_BY_SEVERITY if totals.get(status)), ""),
        "ends": dict(sorted(ends.items())),
        "quiet_before": 0 if facts.after is None else facts.tick - facts.after - 1,
        "planned": len(facts.order),
        "turns": ends.total(),
        "begun": facts.begun,
        "starts": max(len(facts.epochs), 1),
        "duration_ms": _measure_duration(facts),
        "problem": problem,
        **{key: totals.get(key) for key in ("entries", "calls", "credits", "cost_usd")},
    }


def _measure_duration(facts: TickFacts) -> int | None:
    """Return the milliseconds from the start to the last answer, or None for times of an earlier recording."""
    if not (facts.at and facts.last_at):
        return None
    elapsed_s = (parse_timestamp(facts.last_at) - parse_timestamp(facts.at)).total_seconds()
    return round(elapsed_s * 1000) if elapsed_s >= 0 else None
