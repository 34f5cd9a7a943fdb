"""The facts of a tick, folded from the lines of its journal. Pure.

One function reads journals for all who look: `fold_journal`. Lines are not checked against each other here:
`lemming verify` does this. Format of the lines: docs/formats.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import RECORD_DEPTH, JsonProblem, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, list_turn_keys, split_key, turn_key
from lemming.kernel.files.descriptors import MAX_LINE_BYTES
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.checksums import is_intact, line_checksum
from lemming.kernel.journal.journal_file import raw_journal
from lemming.kernel.journal.journal_parser import InvalidRecord, parse_record
from lemming.kernel.journal.journal_records import RECORDS
from lemming.kernel.journal.tick_plan import FOR_OTHERS
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.org.organisation import OrgPath

_OMITTED = frozenset(("type", "epoch", "check", "remarks", "notes", "state"))
"""Keys of a turn's last line outside the facts."""


class CallCost(NamedTuple):
    """Cost of one model answer. `model`: the model key. `cached_tokens`: input tokens from the provider's cache."""

    model: str
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class LedgerCosts(NamedTuple):
    """Spending in an agent's ledger at the start of a turn."""

    credits: float = 0.0
    cost_usd: float | None = None
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def from_json(cls, state: Json) -> LedgerCosts:
        """Return the spending in a line of a ledger. Raises: ValueError or TypeError for an invalid amount."""
        dollars = state.get("cost_usd")
        counts = (int(state.get(key, 0)) for key in cls._fields[2:])
        return cls(float(state.get("credits", 0.0)), None if dollars is None else float(dollars), *counts)


NO_COSTS = LedgerCosts()


@dataclass
class TurnFacts:
    """A turn so far, with its calls in order.

    `model`: the model key of the agent's resume, or empty if this journal has none. `request`: the entry served
    by the turn, as author/tick_id, or empty. `new_entries`: ids of the new entries in the prompt. `report`: the turn's
    report, or None before its end. `settled_write_off`: the write-offs in answers. `reserved`: reservations of
    unanswered calls, by number. `effect_paths`: files of finished tool calls. `tools`: tools started with side
    effects. `answer_times`, `tool_times`: milliseconds of each answer by model, and of each finished tool call by
    tool. `since`: a lower bound of the start of the current activity, and `tool`: the running tool, or empty.
    """

    agent: str
    ledger: LedgerCosts = NO_COSTS
    is_started: bool = False
    model: str = ""
    request: str = ""
    new_entries: list[str] = field(default_factory=list)
    report: Json | None = None
    calls: list[CallCost] = field(default_factory=list)
    settled_write_off: WriteOff = NO_WRITE_OFF
    reserved: dict[int, list[WriteOff]] = field(default_factory=dict)
    effect_paths: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    answer_times: list[tuple[str, int]] = field(default_factory=list)
    tool_times: list[tuple[str, int]] = field(default_factory=list)
    since: str = ""
    tool: str = ""

    @property
    def final_ledger(self) -> LedgerCosts:
        """Spending in the ledger after the turn."""
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        dollars = (self.ledger.cost_usd or 0.0) + sum(costs) if costs else self.ledger.cost_usd
        return LedgerCosts(
            round(self.ledger.credits + sum(call.credits for call in self.calls), 6),
            dollars,
            self.ledger.unpriced_calls + len(self.calls) - len(costs),
            self.ledger.input_tokens + sum(call.input_tokens for call in self.calls),
            self.ledger.output_tokens + sum(call.output_tokens for call in self.calls),
        )

    @property
    def write_off(self) -> WriteOff:
        """Write-off of the turn, counted as spent after the turn has ended."""
        open_ = (reservation for reserved in self.reserved.values() for reservation in reserved)
        return reduce(WriteOff.add, open_, self.settled_write_off)

    def list_written_files(self) -> Iterator[tuple[str, str]]:
        """Yield the paths written by an ended turn, each with its SHA-256.

        The digest is empty for a path of a turn that wrote ahead: only the replayed turn tells whether and what it wrote.
        """
        if self.report is None:
            return
        digests = {file["path"]: file["sha256"] for file in self.report.get("files", ())}
        if ahead := self.report.get("written_ahead"):
            yield from ((path, "") for path in {**digests, **dict.fromkeys(ahead), **dict.fromkeys(self.effect_paths)})
        else:
            yield from digests.items()

    def settle(self, line: Json) -> None:
        """Settle the reservation of a call by its answer or failure."""
        self.reserved.pop(line["call"], None)
        self.settled_write_off = self.settled_write_off.add(WriteOff.from_json(line.get("lost")))


@dataclass
class TickFacts:
    """A tick so far.

    `at`: its clock time. `after`: the previous tick with a journal. `order`: the agents that take a turn.
    `people`: agents with a person or a channel in their place. `last_at`: time of the last answer. `latest_at`:
    time of the last line with a time. `epochs`: numbers of the engines that worked on the tick. `totals`: empty
    until the tick is committed. `expired`: removed entry files. `problem`: the first unreadable line,
    or empty.
    """

    tick: int
    at: str = ""
    after: int | None = None
    order: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    last_at: str = ""
    latest_at: str = ""
    epochs: set[int] = field(default_factory=set)
    totals: Json = field(default_factory=dict)
    expired: list[str] = field(default_factory=list)
    problem: str = ""
    turns: dict[str, TurnFacts] = field(default_factory=dict)

    @property
    def turn_keys(self) -> list[str]:
        """The keys of the tick's turns in order, including turns not yet begun."""
        return [key for name in self.order for key in list_turn_keys(name, self.turns) or [name]]

    @property
    def begun(self) -> int:
        """The number of agents whose turn has begun."""
        return len(self.shown)

    @property
    def shown(self) -> dict[str, list[str]]:
        """Ids of the new entries in each agent's last prompt."""
        return {turn.agent: turn.new_entries for turn in self.turns.values() if turn.is_started}

    @property
    def wrote(self) -> dict[str, tuple[str, str]]:
        """Author and kind of each entry written in the tick, by id."""
        return {
            entry["id"]: (turn.agent, entry["kind"])
            for turn in self.turns.values()
            for entry in (turn.report or {}).get("entries", ())
        }

    @property
    def spent(self) -> dict[str, Json]:
        """Reports of finished turns that called a model, by agent: of several turns of an agent, the last."""
        reports = {turn.agent: turn.report for turn in self.turns.values() if turn.report}
        return {agent: report for agent, report in reports.items() if report.get("calls")}


def load_tick_facts(base: OrgPath, tick: int) -> TickFacts:
    """Return the facts of a tick from its journal. Raises: CorruptState for an unreadable journal or line."""
    facts = fold_journal(tick, raw_journal(base, tick))
    if facts.problem:
        raise corrupt_facts_error(facts)
    return facts


def corrupt_facts_error(facts: TickFacts) -> CorruptState:
    """Return the error for a journal with an unreadable line."""
    hint = "run `lemming verify`"
    return CorruptState(f"the tick cannot be read: {facts.problem}", where=paths.journal_file(facts.tick), hint=hint)


def fold_journal(tick: int, raw: bytes) -> TickFacts:
    """Return the facts in a journal's bytes; an incomplete last line is ignored, an unreadable line is a problem."""
    facts = TickFacts(tick)
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        kind = ""
        try:
            values = parse(line, limit_bytes=MAX_LINE_BYTES, max_depth=RECORD_DEPTH)
            kind = str(values["type"])
            _require_record(kind, values)
            _apply_line(facts, kind, values)
        except JsonProblem as error:
            facts.problem = facts.problem or f"line {number} is damaged: {error.message}"
        except InvalidRecord as error:
            facts.problem = facts.problem or f"line {number} is no record: {error}"
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            facts.problem = facts.problem or f"line {number} is no record: {type(error).__name__} in a {kind or 'line'}"
    _chain_ledgers(facts)
    return facts


def _require_record(kind: str, line: Json) -> None:
    """Raise InvalidRecord for a line that would make wrong facts. People edit journals, and checksums need no key."""
    if kind in RECORDS:
        parse_record(line)
    elif not (isinstance(line.get("epoch", 1), int) and isinstance(line.get("agent", ""), str)):
        raise InvalidRecord(f"{kind[:80]} needs an agent's name and a number as its epoch")


def _apply_line(facts: TickFacts, kind: str, line: Json) -> None:
    facts.epochs.add(line.get("epoch", 1))
    facts.latest_at = line.get("at") or facts.latest_at
    if "agent" in line and kind != "model_reserved":
        turn = _get_turn(facts, line)
        turn.since, turn.tool = facts.latest_at, line["tool"] if kind == "tool_started" else ""
    match kind:
        case "tick_started":
            facts.at, facts.after, facts.order = line["at"], line.get("after"), line["order"]
            facts.people = [name for name, reason in line.get("skipped", {}).items() if reason in FOR_OTHERS]
        case "turn_started":
            turn = _get_turn(facts, line)
            if turn.is_started:  # of a turn that was begun again, the first counts
                return
            prefix = line.get("opening", line)
            turn.is_started, turn.ledger, turn.new_entries = True, LedgerCosts.from_json(line["state"]), line["entries"]
            turn.model = prefix["resume"]["model"]["key"] if isinstance(prefix, dict) else ""
            turn.request = (line.get("task") or {}).get("request") or ""
        case "model_reserved":
            _get_turn(facts, line).reserved.setdefault(line["call"], []).append(WriteOff.from_json(line))
        case "model_failed":
            _get_turn(facts, line).settle(line)
        case "model_replied":
            turn = _get_turn(facts, line)
            turn.settle(line)
            facts.last_at = max(facts.last_at, line["at"])
            tokens = line["input_tokens"], line["output_tokens"], line.get("cached_tokens", 0)
            cost = CallCost(line.get("key") or "", line["credits"], line.get("cost_usd"), *tokens)
            turn.answer_times.append((line.get("model", ""), line.get("duration_ms", 0)))
            # Without a key the resume's model answered, which an earlier journal may name.
            turn.calls.append(cost if cost.model else cost._replace(model=f"={line.get('model', '')}"))
        case "tool_started":
            _get_turn(facts, line).tools.append(line["tool"])
        case "tool_finished":
            turn = _get_turn(facts, line)
            turn.tool_times.append((line["tool"], line.get("duration_ms", 0)))
            turn.effect_paths += [FileEffect.from_json(effect).path_key for effect in line["effects"]]
        case "turn_committed" | "turn_skipped":
            turn = _get_turn(facts, line)
            turn.report = {key: value for key, value in line.items() if key not in _OMITTED}
            turn.request = turn.request or line.get("request", "")
        case "entries_expired":
            facts.expired += line["files"]
        case "tick_committed":
            facts.totals = line["totals"]


def _get_turn(facts: TickFacts, line: Mapping[str, Any]) -> TurnFacts:
    """Return the turn of a line; calls are numbered by turn."""
    number = line["turn"] if "turn" in line else line.get("call", line.get("index", 0)) // NUMBERS_PER_TURN
    return facts.turns.setdefault(turn_key(line["agent"], number), TurnFacts(line["agent"]))


def _chain_ledgers(facts: TickFacts) -> None:
    """Start each later turn of an agent with the ledger after its previous turn. Concurrent turns may start alike."""
    for key, turn in facts.turns.items():
        agent, number = split_key(key)
        previous = facts.turns.get(turn_key(agent, number - 1)) if number else None
        if previous is not None and previous.calls and turn.ledger == facts.turns[agent].ledger:
            turn.ledger = previous.final_ledger


class ModelKeys:
    """Model keys of agents, from tick to tick, because a turn may refer to an earlier journal for its resume."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def resolve(self, facts: TickFacts) -> TickFacts:
        """Fill in the model keys of a tick's turns and calls; ticks must come oldest first. Returns the same facts."""
        for turn in facts.turns.values():
            turn.model = turn.model or self._keys.get(turn.agent, "")
            if turn.model:
                self._keys[turn.agent] = turn.model
            turn.calls = [
                call._replace(model=turn.model or call.model[1:]) if call.model.startswith("=") else call
                for call in turn.calls
            ]
        return facts


def is_chain_intact(lines: list[bytes]) -> bool:
    """Return True if each of a journal's lines, without line ends, follows from the previous line.

    A torn last line is ignored. The content of the lines is not parsed, which keeps the check fast.
    """
    checksum = b""
    for line in lines[: -1 if lines[-1] else -2]:
        if not is_intact(line + b"\n", checksum):
            return False
        checksum = line_checksum(line + b"\n")
    return True
