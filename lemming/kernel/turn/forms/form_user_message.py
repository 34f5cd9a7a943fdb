"""User message of a prompt: the news of the turn, stable parts first, the request last. Pure.

Text of other authors is confined. A text of one line is a JSON string, with quotes and line breaks escaped;
in a longer text every line begins with `> `. An author controls nothing in front of the text: names of agents
and keys of memories are checked earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import escape_markers, quote_payload, quote_text
from lemming.kernel.inboxes.turn_agenda import RequestOutcome
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.prompt_input import PLAIN, Lines, PromptInput, PromptLabels
from lemming.kernel.turn.tool_results import extract_notices, without_notices

NOTHING_NEW = "(nothing new)"
_told_of = attrgetter("summary_line")


def describe_user_message(prompt_input: PromptInput) -> Lines:
    """Return the lines of the user message."""
    labels, inbox, task = prompt_input.labels, prompt_input.inbox, prompt_input.task
    lines = [f"{escape_markers(label)}:{quote_text(text)}" for label, text in prompt_input.context]
    lines += _memory_lines(prompt_input) if prompt_input.memory else ()
    lines += [f"{title}:{quote_text(text)}" for title, text in prompt_input.leading_sections if text]
    if prompt_input.omitted_count:
        lines.append(f"({prompt_input.omitted_count} older entries are left out)")
    if inbox.earlier:
        lines += [f"before, {entry_text}" for entry_text in _describe_entries(inbox.earlier, labels)]
    if inbox.own_entries:
        lines += [f"you wrote, {entry_text}" for entry_text in _describe_entries(inbox.own_entries, labels)]
    lines += _describe_subject(prompt_input, has_ids=True)
    if inbox.waiting:
        lines.append(f"({inbox.waiting} more entries wait for your next turn)")
    notices: list[str] = []
    if prompt_input.results:
        lines += [describe_result(result, labels) for result in without_notices(prompt_input.results)]
        notices = [" ".join(text.split()) for text in extract_notices(prompt_input.results)]
    lines += prompt_input.time
    lines += [f"WARNING: {warning}" for warning in (*prompt_input.warnings, *notices)]
    if task and task.request:
        lines.append(describe_request(task.request, labels))
    return "\n".join(lines or [NOTHING_NEW]).split("\n")


def _describe_subject(prompt_input: PromptInput, *, has_ids: bool) -> list[str]:
    """Return the conversation and sub-requests of the task, or the new entries and requests, with or without ids."""
    labels, task, requests = prompt_input.labels, prompt_input.task, prompt_input.requests
    lines = _describe_entries(task.thread, labels) if task else []
    for outcome in task.outcomes if task else ():
        lines += () if outcome.sub_request.call else describe_sub_request(outcome, labels)
    if not requests:  # as mostly
        return lines + _describe_entries(prompt_input.inbox.unread, labels)
    request_ids = {id(entry) for entry in requests}
    lines += _describe_entries([entry for entry in prompt_input.inbox.unread if id(entry) not in request_ids], labels)
    return lines + [describe_request(entry, labels, identity=entry.id if has_ids else "") for entry in requests]


def describe_entry(entry: OutboxEntry, labels: PromptLabels) -> str:
    """Return an entry as text: trust label, author, kind if informative, content."""
    return f"{labels.entry_prefix(entry)}{entry.summary_line}"


def describe_request(entry: OutboxEntry, labels: PromptLabels, *, identity: str = "") -> str:
    """Return a request to the agent as text, with the id if the answer must name the request."""
    id_prefix = f"[{identity}] " if identity else ""
    return f"{labels.entry_prefix(entry)}{id_prefix}{entry.agent} asks:{quote_payload(entry.payload)}"


def _describe_entries(entries: Sequence[OutboxEntry], labels: PromptLabels) -> list[str]:
    if labels is PLAIN:  # without a call for each
        return [*map(_told_of, entries)]
    return [describe_entry(entry, labels) for entry in entries]


def describe_results(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the results of the last reply's calls as text, with arguments if a tool was called twice."""
    tools = [result["tool"] for result in results]
    return [describe_result(result, PLAIN, has_arguments=tools.count(result["tool"]) > 1) for result in results]


def describe_result(result: Mapping[str, Any], labels: PromptLabels, *, has_arguments: bool = True) -> str:
    """Return a call's result as text, after the name and the arguments."""
    call_text = _quote_tool_name(result["tool"])
    if has_arguments and result["args"]:
        call_text = f"{call_text}({escape_markers(to_line(result['args']))})"
    failure_note = "" if result["success"] else " failed"
    return f"{labels.result_prefix(result)}{call_text}{failure_note}:{quote_text(result['output'])}"


def _quote_tool_name(name: str) -> str:
    """Return a tool's name for a line; a name invented by a model may be any text."""
    return name if name.replace("_", "").replace(".", "").replace("-", "").isalnum() else escape_markers(to_line(name))


def _memory_lines(prompt_input: PromptInput) -> list[str]:
    lines: dict[str, str] = {}
    for key, value in prompt_input.memory.items():
        text = quote_text(value) if isinstance(value, str) else f" {escape_markers(to_line(value))}"
        lines[key] = f"{prompt_input.labels.memory_prefix(key)}memory {key}:{text}"
    return fit_memories(lines, prompt_input.memory_chars)


def fit_memories(lines: Mapping[str, str], room: int) -> list[str]:
    """Return the lines of memories that fit into `room` characters, and a line about the others."""
    shown, omitted_keys = list[str](), list[str]()
    for key, line in lines.items():
        if len(line) > room:
            omitted_keys.append(key)
            continue
        room -= len(line)
        shown.append(line)
    return [*shown, f"(too long to show, use memory_read: {', '.join(omitted_keys)})"] if omitted_keys else shown


def describe_sub_request(outcome: RequestOutcome, labels: PromptLabels) -> Iterator[str]:
    """Yield the lines about a sub-request and the outcome."""
    if outcome.entry:
        yield f"you asked {outcome.sub_request.to}:{quote_payload(outcome.entry.payload)}"
    if outcome.answer is not None:
        yield describe_entry(outcome.answer, labels)
    elif outcome.answer_payload is not None:
        yield f"{outcome.sub_request.to} (by default): {escape_markers(to_line(outcome.answer_payload))}"
    else:
        yield f"({outcome.sub_request.to}: {outcome.sub_request.end or 'no answer yet'})"


def describe_task(prompt_input: PromptInput, rules: Iterable[str], pending_indexes: Collection[int] = ()) -> str:
    """Return a description of a turn's task.

    `rules`: policies and instructions of the judges. `pending_indexes`: indexes of results that arrive as the
    turn begins, and are described with the turn's own calls.
    """
    results = [result for index, result in enumerate(prompt_input.results) if index not in pending_indexes]
    return "\n".join(_lines(prompt_input, "\n".join(rules), results))


def _lines(prompt_input: PromptInput, rules: str, results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    labels, task = prompt_input.labels, prompt_input.task
    for label, text in prompt_input.context:
        if label.partition(" (trust: ")[0] in rules:
            yield f"{label}:{quote_text(text)}"
    for key, value in prompt_input.memory.items():
        if key in rules:
            value_text = value if isinstance(value, str) else to_line(value)
            yield f"{labels.memory_prefix(key)}memory {key}:{quote_text(value_text)}"
    yield from (f"{title}:{quote_text(text)}" for title, text in prompt_input.leading_sections if text)
    yield from _describe_subject(prompt_input, has_ids=False)
    yield from (describe_result(result, labels) for result in without_notices(results))
    if task and task.request:
        yield describe_request(task.request, labels)
