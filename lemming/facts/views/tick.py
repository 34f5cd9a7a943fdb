"""One tick: its plan with its reasons, its turns as bars in time, one of them whole; the strip of ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lemming.facts.views.glances import Glance, glances_at
from lemming.facts.views.sentences import payload_text, text_said, wish_of
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.journal.file import begun_journals
from lemming.kernel.journal.records import ModelFailed, ModelReplied, ToolFinished, TurnStarted
from lemming.kernel.journal.report import USUAL_ENDS
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.turns_not_done import NotDone, read_turns_not_done
from lemming.service.under_way import running_engine
from lemming.timeline.gaps import state_of
from lemming.timeline.record import RecordedTick, ToolUse, TurnRecord, quiet_tick, read_tick
from lemming.timeline.why.sight import sight_of

ROWS_SHOWN = 100
FILE_SHOWN_CHARS = 20_000
CLOCKS_DIFFER_MS = 50
"""An answer's moment is read from one clock and how long it took from another."""


def tick(
    org: OrgPath, *, number: int | None = None, agent: str = "", first: int = 0, around: int = 0
) -> dict[str, Any]:
    """Return a tick (default: the newest) with a row for each of its turns, at most 100 from `first` on.

    With `agent`, `turn` is that agent's turn whole: its prompt, its answers, what its tools gave, its files;
    or `no_turn` says why it took none. With `around`, `strip` is the stretch of so many ticks around it.
    Raises `UsageError` where there is no such tick, `CorruptState` for a damaged journal.
    """
    org = Organisation.at(org)
    if number is not None and number < 0:
        raise UsageError(f"there is no tick {number}", hint="ticks are counted from 0")
    record = recorded(org, number)
    rows = record.turn_keys
    turn = record.turn_of(agent) if agent else None
    return {
        **plan_of(record),
        "state": _state(org, record),
        "next_tick": load_tick(org),
        "first": first,
        "timing": timing_of(record, rows[first : first + ROWS_SHOWN]),
        "rows": [_row(record, key) for key in rows[first : first + ROWS_SHOWN]],
        "turn": whole_turn(turn, record) if turn else None,
        "no_turn": _no_turn(record, agent) if agent and not turn else "",
        **({"strip": _strip(org, record.tick, around)} if around > 0 else {}),
    }


def _strip(org: Organisation, number: int, count: int) -> list[dict[str, Any]]:
    """Return the stretch of so many ticks that a tick stands in, and the first of the next."""
    before = number - number % count + count + 1
    strip: list[dict[str, Any]] = ticks(org, before=before, count=count + 1)["ticks"]
    return strip


def _no_turn(record: RecordedTick, agent: str) -> str:
    plan = record.plan
    why = plan.skipped.get(agent) or plan.broken.get(agent) or ("not due" if agent in plan.not_due else "")
    return f"{agent[:80]} took no turn in tick {record.tick}: {why or 'it was not there'}"


def whole_turn(turn: TurnRecord, record: RecordedTick) -> dict[str, Any]:
    """Return one turn with its prompts, its answers, and the texts of the small files that it wrote."""
    return {**turn_of(turn, record, prompts=True), "contents": _contents(turn)}


def recorded(org: OrgPath, number: int | None) -> RecordedTick:
    """Return a tick (default: the newest that has a journal), one in which nobody took a turn included."""
    if number is None:
        newest = begun_journals(org, 1)
        if not newest:
            raise UsageError("no tick has been run here", hint="`lemming run-once` runs one")
        number = newest[-1]
    try:
        return read_tick(org, number)
    except UsageError:  # it has no journal
        if state_of(org, number) == "quiet":
            not_done = sorted(read_turns_not_done(org, until=number).values(), key=lambda it: it.agent)
            skipped = {it.agent: it.reason for it in not_done if it.status == "skipped"}
            return quiet_tick(number, skipped, {it.agent: it.reason for it in not_done if _is_broken(it)})
        raise


def _is_broken(turn: NotDone) -> bool:
    """Return whether it was no turn that failed, but a resume that none could be taken with."""
    return turn.status == "failed" and turn.error == "ConfigError"


def plan_of(record: RecordedTick) -> dict[str, Any]:
    """Return a tick's plan, and what its turns came to together."""
    return {
        "tick": record.tick,
        "at": record.begin.at,
        "is_committed": record.end is not None,
        "engine_starts": record.engine_starts,
        "order": record.plan.order,
        "not_due": record.plan.not_due,
        "skipped": record.plan.skipped,
        "broken": record.plan.broken,
        "expired": record.expired,
        "expired_unread": record.unread,
        "totals": record.totals,
    }


def turn_of(turn: TurnRecord, record: RecordedTick, *, prompts: bool) -> dict[str, Any]:
    """Return one turn as JSON values."""
    report = turn.report
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
        "saw": [vars(seen) for seen in sight_of(turn, record.plan.everyone).entries],
        "results": turn.results,
        "prompt_chars": sum(len(message["content"]) for message in turn.prompt),
        **({"prompt": turn.prompt} if prompts else {}),
        "answers": [vars(call) for call in turn.calls],
        "tools": [{**vars(use), "wish": _wish(use)} for use in turn.tools],
        "entries": [
            {**it.as_json(), "says": text_said(it.payload) or payload_text(it.payload)} for it in turn.entries
        ],
        "memory": turn.memory,
        "files": [
            {"path": place, "sha256": effect.digest, "bytes": len(effect.content)}
            for place, effect in turn.writes.items()
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


def _wish(use: ToolUse) -> str:
    """Return what a call was to do, in words."""
    return wish_of(use.tool, use.args if isinstance(use.args, dict) else {})


def _state(org: Organisation, record: RecordedTick) -> str:
    if record.engine_starts == 0:
        return "quiet"
    if record.end is not None:
        return "committed"
    return "running" if running_engine(org) else "interrupted"


def _contents(turn: TurnRecord) -> dict[str, str]:
    """Return the texts among the small files that a turn wrote, by path."""
    small = {place: it.content for place, it in turn.writes.items() if len(it.content) <= FILE_SHOWN_CHARS}
    return {place: content.decode("utf-8", "replace") for place, content in small.items()}


def _row(record: RecordedTick, name: str) -> dict[str, Any]:
    """Return a turn in one line; no record is taken apart for it but those that end the turn.

    `name`: the key of the turn.
    """
    ended = record.ended.get(name)
    report = ended.report if ended else None
    tools = [one for one in record.records_of(name) if isinstance(one, ToolFinished)]
    answers = [one for one in record.records_of(name) if isinstance(one, ModelReplied)]
    return {
        "agent": name,
        "status": report.status if report else ("working" if record.records_of(name) else "not begun"),
        "end": (report.end or USUAL_ENDS[report.status]) if report else "",
        "reason": report.reason if report else "",
        "entries": [dict(entry) for entry in report.entries] if report else [],
        "saw": len(record.started[name].entries) if name in record.started else 0,
        "calls": report.calls if report else len(answers),
        "tools": len(tools),
        "tools_failed": sum(
            one.success is False and one.outcome not in ("pending", "deferred") for one in tools
        ),
        "verdicts": len(report.verdicts) if report else 0,
        "memories": len(report.memory) if report else 0,
        "files": len(report.files) if report else 0,
        "credits": report.credits if report else sum(one.credits for one in answers),
        "cost_usd": report.cost_usd if report else None,
        "input_tokens": report.input_tokens if report else sum(one.input_tokens for one in answers),
        "output_tokens": report.output_tokens if report else sum(one.output_tokens for one in answers),
    }


# --- bars ----------------------------------------------------------------------------------------


def timing_of(record: RecordedTick, names: list[str]) -> dict[str, Any]:
    """Return when each turn's model was asked and had answered, in milliseconds after the tick began.

    Only answers, and calls that gave none, tell the time. `is_exact`: they were given in this tick, in one
    go; those of an earlier recording, and of a tick that was interrupted, are laid one after another, by how
    long they took. A bar without an end: the turn goes on.
    """
    began = parse_timestamp(record.begin.at) if record.begin.at else None
    answers = [one for one in record.answers.values() if isinstance(one, ModelReplied)]
    is_exact = began is not None and record.engine_starts < 2
    is_exact = is_exact and all(began and _asked_ms(began, one) >= -CLOCKS_DIFFER_MS for one in answers)
    bars = _measured(record, names, began) if is_exact and began else _laid_out(record, names)
    ends = [bar["end_ms"] for each in bars.values() for bar in each if bar["end_ms"] is not None]
    return {"is_exact": is_exact, "bars": bars, "end_ms": max(ends, default=0)}


def _asked_ms(began: datetime, answer: ModelReplied) -> int:
    return _after_ms(began, answer) - answer.duration_ms


def _after_ms(began: datetime, answer: ModelReplied) -> int:
    return round((parse_timestamp(answer.at) - began).total_seconds() * 1000)


def _measured(record: RecordedTick, names: list[str], began: datetime) -> dict[str, list[dict[str, Any]]]:
    bars: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    latest, since = 0, dict[str, int]()  # a turn cannot have begun before what its journal tells before it
    for one in record.records:
        if isinstance(one, ModelReplied):
            since[one.turn_key] = end = _after_ms(began, one)
            latest = max(latest, end)
            if one.turn_key in bars:
                bars[one.turn_key].append(_bar(max(_asked_ms(began, one), 0), end))
        elif isinstance(one, ModelFailed):
            begin = since.get(one.turn_key, latest)
            since[one.turn_key] = begin + one.duration_ms
            if one.turn_key in bars:
                bars[one.turn_key].append(_bar(begin, begin + one.duration_ms, is_lost=True))
        elif isinstance(one, TurnStarted):
            since[one.turn_key] = latest
    for name in bars.keys() & since.keys() - record.ended.keys():
        bars[name].append(_bar(since[name], None))
    return bars


def _laid_out(record: RecordedTick, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    bars: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    begin = 0
    for one in record.records:
        if isinstance(one, ModelReplied | ModelFailed) and one.turn_key in bars:
            is_lost = isinstance(one, ModelFailed)
            bars[one.turn_key].append(_bar(begin, begin + max(one.duration_ms, 0), is_lost=is_lost))
            begin += max(one.duration_ms, 0)
    return bars


def _bar(begin_ms: int, end_ms: int | None, *, is_lost: bool = False) -> dict[str, Any]:
    return {"begin_ms": begin_ms, "end_ms": end_ms, **({"is_lost": True} if is_lost else {})}


SHOWN = 60
MOST_SHOWN = 500
_WORST_FIRST = ("failed", "waiting", "done", "skipped")


def ticks(org: OrgPath, *, before: int | None = None, count: int = SHOWN) -> dict[str, Any]:
    """Return the newest ticks that have a journal, oldest first; with `before`, those before that tick.

    `older` says whether there are more; pass the first one's number as `before` for them. A tick's
    `quiet_before` counts the ticks before it in which nobody took a turn, or of which the journal is gone.
    """
    org, count = Organisation.at(org), min(max(count, 1), MOST_SHOWN)
    numbers = begun_journals(org, count + 1, before=before)
    older, numbers = len(numbers) > count, numbers[-count:]
    is_running = running_engine(org) is not None
    return {
        "next_tick": load_tick(org),
        "is_running": is_running,
        "older": older,
        "ticks": [_facts(org, glance, is_running) for glance in glances_at(org, numbers)],
    }


def _facts(org: Organisation, glance: Glance, is_running: bool) -> dict[str, Any]:
    totals, problem = glance.totals, glance.problem
    if not (totals or problem):
        totals, problem = _so_far(org, glance.tick)
    return {
        "tick": glance.tick,
        "at": glance.at,
        "status": "damaged" if problem else _status_of(glance, is_running),
        "worst": worst_of(totals),
        "ends": dict(sorted(glance.ended.items())),
        "quiet_before": 0 if glance.after is None else glance.tick - glance.after - 1,
        "planned": glance.planned,
        "turns": sum(glance.ended.values()),
        "begun": len(glance.begun),
        "starts": glance.starts,
        "duration_ms": glance.duration_ms,
        "problem": problem,
        **{key: totals.get(key) for key in ("entries", "calls", "credits", "cost_usd")},
    }


def worst_of(totals: dict[str, Any]) -> str:
    """Return the worst status among a tick's turns; empty when no turn has ended.

    >>> worst_of({"done": 3, "waiting": 1, "skipped": 2, "failed": 0})
    'waiting'
    """
    return next((status for status in _WORST_FIRST if totals.get(status)), "")


def _status_of(glance: Glance, is_running: bool) -> str:
    if glance.is_over:
        return "committed"
    return "running" if is_running else "interrupted"


def _so_far(org: Organisation, tick: int) -> tuple[dict[str, Any], str]:
    """Return what a tick that is not over has come to, and what is wrong with its journal."""
    try:
        return read_tick(org, tick).totals, ""
    except (CorruptState, UsageError) as error:
        return {}, str(error)
