"""`lemming tick`: one tick whole."""

from __future__ import annotations

from typing import Annotated

from lemming.commands.narration import text_of
from lemming.commands.options import Here, argument, option
from lemming.commands.screen import (
    Style,
    as_text,
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_json,
    show_text,
    totals_in_words,
)
from lemming.facts.prompt_parts import describe_message
from lemming.facts.views.tick import plan_of, recorded, turn_of
from lemming.kernel.mail.capability_notes import notes_of
from lemming.timeline.record import ModelCall, RecordedTick, ToolUse, TurnRecord
from lemming.timeline.why.sight import SeenEntry, sight_of

KNOWN_SHOWN = 5
_STYLES: dict[str, Style] = {"failed": "red", "skipped": "dim", "waiting": "yellow", "unfinished": "yellow"}


def tick(
    here: Here,
    number: Annotated[int | None, argument("TICK", "Which tick; default: the last one.", min=0)] = None,
    prompts: Annotated[bool, option("--prompts", "Show the prompts too, not their size only.")] = False,
) -> None:
    """Show one tick whole, as its journal tells it: the plan, and of each turn what it was shown, what its
    model answered, what its tools gave, what it wrote and what it cost.

    \b
    Examples:
      lemming tick
      lemming tick 42 --prompts
      lemming tick 42 --json | jq -r '.turns[] | .agent + " " + .status'
    """
    record = recorded(here.org, number)
    if here.as_json:
        turns = [turn_of(turn, record, prompts=prompts) for turn in record.turns]
        show_json("tick", {**plan_of(record), "turns": turns})
        return
    if not record.engine_starts:
        show(f"tick {record.tick}: nobody took a turn; nothing was written but the counter")
        _show_skipped(record)
        return
    _show_plan(record)
    for turn in record.turns:
        _show_turn(turn, record, prompts=prompts)
    show()
    show(f"totals    {totals_in_words(record.totals)}")


# --- for people ----------------------------------------------------------------------------------


def _show_skipped(record: RecordedTick) -> None:
    for name, why in record.plan.skipped.items():
        show(painted(f"skipped   {name}: {one_line(why, 400)}", "dim"))
    for name, why in record.plan.broken.items():
        show(f"{painted('broken', 'red')}    {name}: {one_line(why, 400)}")


def _show_plan(record: RecordedTick) -> None:
    when = record.begin.at[:19].replace("T", " ")
    state = "committed" if record.end else "unfinished; `lemming run-once` continues it"
    starts = f", in {record.engine_starts} attempts" if record.engine_starts > 1 else ""
    show(painted(f"tick {record.tick}, {when}, {state}{starts}", "bold"))
    show(f"order     {', '.join(record.plan.order) or 'nobody is due'}")
    if record.plan.not_due:
        show(painted(f"not due   {one_line(', '.join(record.plan.not_due), 400)}", "dim"))
    _show_skipped(record)
    for file in record.expired:
        show(painted(f"expired   {one_line(file, 400)}", "dim"))
    for reader, count in record.unread.items():
        show(painted(f"unread    {count} of them by {one_line(reader, 100)}", "yellow"))


def _show_turn(turn: TurnRecord, record: RecordedTick, *, prompts: bool) -> None:
    report = turn.report
    status = painted(turn.status, _STYLES.get(turn.status, "green"))
    why = f"  {one_line(report.reason, 600)}" if report and report.reason else ""
    show()
    show(f"{painted(turn.key, 'bold')}  {status}{why}")
    if turn.attempts > 1 or turn.stops:
        stops = f", stopped {turn.stops} times" if turn.stops else ""
        _line("attempts", f"begun {turn.attempts} times{stops}")
    _show_entries(sight_of(turn, record.plan.everyone).entries)
    for result in turn.results:
        _line("saw", one_line(f"result of {result['tool']}: {result['output']}", 400))
    if turn.prompt:
        _line("prompt", f"{counted(len(turn.prompt), 'message')}, {_size(turn):,} characters")
        if prompts:
            _show_prompt(turn)
    for call in turn.calls:
        _show_call(call)
    for use in turn.tools:
        _line("tool", f"{use.tool} {_args(use)}  {_end_of(use)}")
    for entry in turn.entries:
        _line("entry", f"{entry.id}  {entry.kind}  {one_line(text_of(entry.payload), 2000)}")
    for key, value in turn.memory.items():
        _line("memory", f"{key} = {one_line(as_text(value), 400)}")
    for place, effect in turn.writes.items():
        _line("file", f"{one_line(place, 400)}  {len(effect.content):,} bytes, sha256 {effect.digest[:12]}")
    if report:
        for place in report.removed:
            _line("removed", one_line(place, 400))
        for verdict in report.judged["verdicts"] if report.judged else ():
            said = "passes" if verdict["passes"] else f"does not pass: {one_line(verdict['reason'], 400)}"
            _line("judged", f"by {verdict['by']}, {said}")
        for remark in report.remarks:
            _line("remark", one_line(remark, 600))
        if report.notes:
            _line("notes", one_line(report.notes, 600))
        if report.calls:
            _line("cost", totals_in_words({**report.as_json(), "calls": report.calls}))


def _show_prompt(turn: TurnRecord) -> None:
    for message in turn.prompt:
        show(painted(f"  --- {message['role']}", "dim"))
        show_text(_indented(describe_message(message)))
    show(painted("  ---", "dim"))


def _show_call(call: ModelCall) -> None:
    tokens = f"{call.input_tokens:,} tokens in, {call.output_tokens:,} out"
    cost = f"{counted(call.credits, 'credit')}, {in_dollars(call.cost_usd)}, {tokens}"
    for failed in call.earlier:
        text = one_line(f"{failed['code']} {failed['message']}", 400)
        _line("asked", f"{painted('failed', 'red')}  {text}")
    if call.error:
        _line("answer", f"{painted('none', 'red')}  {one_line(f'{call.code} {call.error}'.strip(), 600)}")
        return
    who = f"{call.model} (model key {call.key})" if call.key else call.model
    _line("answer", painted(f"{who}, {call.duration_ms / 1000:.1f}s, {cost}", "dim"))
    show_text(_indented(call.text, 12))
    if call.problem:
        _line("", f"{painted('not a reply', 'yellow')}: {one_line(call.problem, 600)}")


def _line(label: str, text: str) -> None:
    show(f"  {label:<8}  {text}")


def _show_entries(entries: list[SeenEntry]) -> None:
    """Show what was new to the turn; what it knew already is told, and counted where it is much."""
    known = [seen for seen in entries if not seen.is_new]
    folded = known if len(known) > KNOWN_SHOWN else []
    for seen in entries:
        if seen not in folded:
            _line("saw", _entry_line(seen))
    if folded:
        _line("saw", f"{counted(len(folded), 'entry', 'entries')} that it knew already (--json lists them)")


def _entry_line(seen: SeenEntry) -> str:
    if seen.author is None:
        return f"{seen.id}"
    text = text_of(seen.payload) if isinstance(seen.payload, dict) else ""
    known = "" if seen.is_new else "  (known)"
    return f"{seen.id}  {seen.author}, tick {seen.tick}  {one_line(text, 200)}{known}"


def _end_of(use: ToolUse) -> str:
    if use.success is None:
        return painted("not finished", "yellow")
    head = painted("ok", "green") if use.success else painted("failed", "red")
    said = "".join(f"  ({note.text})" for note in notes_of(use.kept))
    return f"{head}  {one_line(use.output, 400)}{said}"


def _args(use: ToolUse) -> str:
    return one_line(as_text(use.args), 400) if use.args is not None else ""


def _indented(text: str, width: int = 2) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _size(turn: TurnRecord) -> int:
    return sum(len(message["content"]) for message in turn.prompt)
