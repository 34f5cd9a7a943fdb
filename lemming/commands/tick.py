"""`lemming tick`: one tick in full."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from lemming.commands.command_context import CommandContext, argument, option
from lemming.commands.terminal import (
    Style,
    describe_totals,
    format_count,
    format_usd,
    one_line,
    print_data,
    print_json,
    print_text,
    style_text,
    to_text,
)
from lemming.journal_tools.provenance.prompt_parser import ShownEntry, parse_prompt
from lemming.journal_tools.recorded_tick import ModelCall, RecordedTick, RecordedTurn, ToolUse
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.capability_queries import find_call_notes
from lemming.kernel.messages import EntryName
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.outbox_files import read_entry
from lemming.obligations.pending_actions import find_call_review
from lemming.queries.prompt_parts import describe_message
from lemming.queries.sentences import describe_effects, describe_entry
from lemming.queries.views.tick_view import build_plan_section, count_turns, load_recorded_tick, turn_to_json

MAX_KNOWN_SHOWN = 5
_STYLES: dict[str, Style] = {"failed": "red", "skipped": "dim", "waiting": "yellow", "unfinished": "yellow"}


def tick(
    context: CommandContext,
    number: Annotated[int | None, argument("TICK", "Tick to show. Default: the last tick.", min=0)] = None,
    prompts: Annotated[bool, option("--prompts", "Show the full prompts instead of their size.")] = False,
) -> None:
    """Show one tick in full: prompts, answers, tool calls, files, cost.

    The output follows the journal: the plan of the tick, and for each turn the inputs, the answers of the
    model, the results of tools, the entries and files, and the cost.

    \b
    Examples:
      lemming tick
      lemming tick 42 --prompts
      lemming tick 42 --json | jq -r '.turns[] | .agent + " " + .status'
    """
    record = load_recorded_tick(context.org, number)
    if context.as_json:
        turns = [turn_to_json(turn, record, prompts=prompts) for turn in record.turns]
        print_json("tick", {**build_plan_section(record), "turns": turns})
        return
    if not record.engine_starts:
        print_data(f"tick {record.tick}: no agent ran; only the tick counter changed")
        _print_skipped(record)
        return
    _print_plan(record)
    for turn in record.turns:
        _print_turn(context.org, turn, record, prompts=prompts)
    print_data()
    print_data(f"totals    {describe_totals(count_turns(record))}")


def _print_skipped(record: RecordedTick) -> None:
    for name, reason in record.plan.skipped.items():
        print_data(style_text(f"skipped   {name}: {one_line(reason, 400)}", "dim"))
    for name, reason in record.plan.broken.items():
        print_data(f"{style_text('broken', 'red')}    {name}: {one_line(reason, 400)}")


def _print_plan(record: RecordedTick) -> None:
    time_text = record.start_record.at[:19].replace("T", " ")
    state_text = "committed" if record.commit_record else "unfinished; `lemming run-once` continues it"
    attempts_text = f", in {record.engine_starts} attempts" if record.engine_starts > 1 else ""
    print_data(style_text(f"tick {record.tick}, {time_text}, {state_text}{attempts_text}", "bold"))
    print_data(f"order     {', '.join(record.plan.order) or 'no agent is due'}")
    if record.plan.not_due:
        print_data(style_text(f"not due   {one_line(', '.join(record.plan.not_due), 400)}", "dim"))
    _print_skipped(record)
    for file in record.expired:
        print_data(style_text(f"expired   {one_line(file, 400)}", "dim"))
    for reader, count in record.unread.items():
        print_data(style_text(f"unread    {count} of them by {one_line(reader, 100)}", "yellow"))


def _print_turn(base: OrgPath, turn: RecordedTurn, record: RecordedTick, *, prompts: bool) -> None:
    report = turn.report
    status = style_text(turn.status, _STYLES.get(turn.status, "green"))
    reason_text = f"  {one_line(report.reason, 600)}" if report and report.reason else ""
    print_data()
    print_data(f"{style_text(turn.key, 'bold')}  {status}{reason_text}")
    if turn.attempts > 1 or turn.stops:
        stops_text = f", stopped {turn.stops} times" if turn.stops else ""
        _print_labelled_line("attempts", f"started {turn.attempts} times{stops_text}")
    entries = parse_prompt(turn, record.plan.all_agents).entries
    known_entries = [entry for entry in entries if not entry.is_new]
    collapsed = known_entries if len(known_entries) > MAX_KNOWN_SHOWN else []
    for entry in (entry for entry in entries if entry not in collapsed):
        _print_labelled_line("saw", _format_entry(base, entry))
    if collapsed:
        count = format_count(len(collapsed), "entry", "entries")
        _print_labelled_line("saw", f"{count} that it had seen before (--json lists them)")
    for result in turn.visible_results:
        _print_labelled_line("saw", one_line(f"result of {result['tool']}: {result['output']}", 400))
    if turn.prompt:
        characters = sum(len(message["content"]) for message in turn.prompt)
        _print_labelled_line("prompt", f"{format_count(len(turn.prompt), 'message')}, {characters:,} characters")
        if prompts:
            for message in turn.prompt:
                print_data(style_text(f"  --- {message['role']}", "dim"))
                print_text(_indent(describe_message(message)))
            print_data(style_text("  ---", "dim"))
    for call in turn.calls:
        _print_call(call)
    for use in turn.tools:
        _print_tool_use(use)
    for effect in describe_effects(turn):
        subject = f"{effect.subject} =" if effect.label == "memory" else one_line(effect.subject, 400)
        kind = effect.kind if effect.label == "entry" else ""
        _print_labelled_line(effect.label, "  ".join(filter(None, (subject, kind, one_line(effect.text, 2000)))))
    if turn.report and turn.report.calls:
        _print_labelled_line("cost", describe_totals({**turn.report.as_json(), "calls": turn.report.calls}))


def _print_call(call: ModelCall) -> None:
    tokens = f"{call.input_tokens:,} tokens in, {call.output_tokens:,} out"
    cost = f"{format_count(call.credits, 'credit')}, {format_usd(call.cost_usd)}, {tokens}"
    for failed_attempt in call.earlier:
        text = one_line(f"{failed_attempt['code']} {failed_attempt['message']}", 400)
        _print_labelled_line("asked", f"{style_text('failed', 'red')}  {text}")
    if call.error:
        text = one_line(f"{call.code} {call.error}".strip(), 600)
        _print_labelled_line("answer", f"{style_text('none', 'red')}  {text}")
        return
    model_text = f"{call.model} (model key {call.key})" if call.key else call.model
    parts = (model_text, f"{call.duration_ms / 1000:.1f}s", cost)  # a program may have no model
    _print_labelled_line("answer", style_text(", ".join(filter(None, parts)), "dim"))
    print_text(_indent(call.text, 12))
    if call.problem:
        _print_labelled_line("", f"{style_text('invalid reply', 'yellow')}: {one_line(call.problem, 600)}")


def _print_labelled_line(label: str, text: str) -> None:
    print_data(f"  {label:<8}  {text}")


def _format_entry(base: OrgPath, entry: ShownEntry) -> str:
    if entry.author is None or entry.tick is None:
        return f"{entry.id}"
    payload = entry.payload
    if not isinstance(payload, dict):  # noticed and not shown, such as a decision
        with suppress(ConfigError, FileNotFoundError):  # past its retention, or removed by hand
            payload = read_entry(base, EntryName(entry.tick, 0, entry.id, entry.author)).payload
    text = describe_entry(payload) if isinstance(payload, dict) else ""
    known_mark = "" if entry.is_new else "  (known)"
    return f"{entry.id}  {entry.author}, tick {entry.tick}  {one_line(text, 200)}{known_mark}"


def _print_tool_use(use: ToolUse) -> None:
    """Print a call, in words if the tool's capability has them, and the result."""
    review = find_call_review(use.tool)
    call = f"{use.tool} {one_line(to_text(use.args), 400) if use.args is not None else ''}"
    if review and isinstance(use.args, dict):
        call = one_line(review.describe(use.args), 400)
    result = style_text("not finished", "yellow")
    if use.success is not None:
        status_text = style_text("ok", "green") if use.success else style_text("failed", "red")
        notes_text = "".join(f"  ({note.text})" for note in find_call_notes(use.kept))
        result = f"{status_text}  {one_line(use.output, 400)}{notes_text}"
    _print_labelled_line("tool", f"{call}  {result}")


def _indent(text: str, width: int = 2) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))
