"""The user message of a prompt: what is new in this turn, what changes least first, the request last. Pure.

Text of others cannot leave its place. A text of one line stands in it as a JSON string, in which a quote and
a line break are escaped; of a longer text every line begins with `> `. Nothing in front of a text is chosen
by its author: names of agents and keys of memories are checked before they come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.payload_text import quote_payload, quote_text
from lemming.kernel.base.quoting import quoted
from lemming.kernel.mail.task import Ended
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.labels import PLAIN, Labels
from lemming.kernel.turn.notices import extract_notices, without_notices
from lemming.kernel.turn.seen import Lines, Seen

NOTHING_NEW = "(nothing new)"
_told_of = attrgetter("told")


def describe_situation(seen: Seen) -> Lines:
    """Return the lines of the user message."""
    labels, inbox, task = seen.labels, seen.inbox, seen.task
    lines = [f"{quoted(label)}:{quote_text(text)}" for label, text in seen.context]
    lines += _memory_lines(seen) if seen.memory else ()
    lines += [f"{title}:{quote_text(text)}" for title, text in seen.before if text]
    if seen.left_out:
        lines.append(f"({seen.left_out} older entries are left out)")
    if inbox.known:
        lines += [f"before, {told}" for told in _describe_entries(inbox.known, labels)]
    if inbox.own:
        lines += [f"you wrote, {told}" for told in _describe_entries(inbox.own, labels)]
    if task:
        lines += _describe_entries(task.thread, labels)
        lines += [
            line for ended in task.asked if not ended.asked.call for line in describe_asked(ended, labels)
        ]
    unread = inbox.unread
    if seen.asked:
        asked = {id(entry) for entry in seen.asked}
        unread = [entry for entry in unread if id(entry) not in asked]
    lines += _describe_entries(unread, labels)
    lines += [describe_request(entry, labels, identity=entry.id) for entry in seen.asked]
    if inbox.waiting:
        lines.append(f"({inbox.waiting} more entries wait for your next turn)")
    notices: list[str] = []
    if seen.results:
        lines += [describe_result(result, labels) for result in without_notices(seen.results)]
        notices = [*map(_one_line, extract_notices(seen.results))]
    lines += seen.time
    lines += [f"WARNING: {warning}" for warning in (*seen.warnings, *notices)]
    if task and task.request:
        lines.append(describe_request(task.request, labels))
    return "\n".join(lines or [NOTHING_NEW]).split("\n")


def describe_entry(entry: OutboxEntry, labels: Labels) -> str:
    """Return an entry: how far it is trusted, its author, its kind where that says something, its text."""
    return f"{labels.of_entry(entry)}{entry.told}"


def describe_request(entry: OutboxEntry, labels: Labels, *, identity: str = "") -> str:
    """Return something that is asked of the agent; with its id where the answer has to name it."""
    named = f"[{identity}] " if identity else ""
    return f"{labels.of_entry(entry)}{named}{entry.agent} asks:{quote_payload(entry.payload)}"


def _describe_entries(entries: Sequence[OutboxEntry], labels: Labels) -> list[str]:
    if labels is PLAIN:  # without a call for each
        return [*map(_told_of, entries)]
    return [describe_entry(entry, labels) for entry in entries]


def describe_results(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what calls of the last reply gave, with their arguments where a tool was called twice."""
    tools = [result["tool"] for result in results]
    return [
        describe_result(result, PLAIN, has_arguments=tools.count(result["tool"]) > 1) for result in results
    ]


def describe_result(result: Mapping[str, Any], labels: Labels, *, has_arguments: bool = True) -> str:
    """Return what a call gave, after its name and arguments."""
    called = _tool_word(result["tool"])
    if has_arguments and result["args"]:
        called = f"{called}({quoted(to_line(result['args']))})"
    failed = "" if result["success"] else " failed"
    return f"{labels.of_result(result)}{called}{failed}:{quote_text(result['output'])}"


def _tool_word(name: str) -> str:
    """Return the name of a tool as it stands in a line; one that a model made up may be any text."""
    return (
        name if name.replace("_", "").replace(".", "").replace("-", "").isalnum() else quoted(to_line(name))
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _memory_lines(seen: Seen) -> Iterator[str]:
    room, left_out = seen.memory_chars, []
    for key, value in seen.memory.items():
        told = quote_text(value) if isinstance(value, str) else f" {quoted(to_line(value))}"
        line = f"{seen.labels.of_memory(key)}memory {key}:{told}"
        if len(line) > room:
            left_out.append(key)
            continue
        room -= len(line)
        yield line
    if left_out:
        yield f"(too long to show, use memory_read: {', '.join(left_out)})"


def describe_asked(ended: Ended, labels: Labels) -> Iterator[str]:
    """Yield what was asked for the request, and what came of it."""
    if ended.entry:
        yield f"you asked {ended.asked.to}:{quote_payload(ended.entry.payload)}"
    if ended.answer is not None:
        yield describe_entry(ended.answer, labels)
    elif ended.payload is not None:
        yield f"{ended.asked.to} (by default): {quoted(to_line(ended.payload))}"
    else:
        yield f"({ended.asked.to}: {ended.asked.end or 'no answer yet'})"
