"""Sentences for actions of agents and people: the same on every screen. Pure.

A screen has the record as well: a sentence may say less than the record, but never more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.libraries.wording import format_count, shorten_line, to_text
from lemming.obligations.decisions import is_approval_request
from lemming.obligations.pending_actions import find_call_review

if TYPE_CHECKING:
    from lemming.journal_tools.recorded_tick import RecordedTurn

Json = dict[str, Any]
MAX_VALUE_CHARS = 160

_CALL_TEMPLATES: Mapping[str, str] = {
    "file_write": "write {path}",
    "file_edit": "change {path}",
    "file_append": "add to {path}",
    "file_read": "read {path}",
    "file_list": "list {path}",
    "file_delete": "delete {path}",
    "shell": "run `{command}`",
    "memory_write": "remember {key}",
    "memory_read": "look up {key}",
    "create_agent": "make the agent {name}",
    "list_agents": "list the agents",
    "permit": "let its harness use {tool} with {input}",
}
NON_TOOL_DECISIONS = frozenset({"show", "spend", "publish"})
"""The decisions that are about no call of a tool: docs/gates.md."""


def describe_call(tool: str, args: Mapping[str, Any]) -> str:
    """Return a description of a tool call, for use after "wants to".

    >>> describe_call("shell", {"command": "git push"})
    'run `git push`'
    >>> describe_call("mail_send", {"to": "ada"})
    'call mail_send with to = ada'
    >>> describe_call("publish", dict(kind="report", payload={"target": ["ada", "bob"]}))
    'send a report to ada and bob'
    >>> describe_call("spend", dict(credits=100, of="agent"))
    'spend 100 credits more than its limit'
    """
    if tool in NON_TOOL_DECISIONS:
        return _describe_non_tool_call(tool, args)
    if review := find_call_review(tool):
        return truncate_value(review.describe(args))
    template = _CALL_TEMPLATES.get(tool)
    names = {key: truncate_value(value) for key, value in args.items()}
    try:
        return template.format_map(names) if template else _describe_generic_call(tool, names)
    except KeyError:  # called without its naming argument
        return _describe_generic_call(tool, names)


def _describe_non_tool_call(tool: str, args: Mapping[str, Any]) -> str:
    if tool == "show":
        return f"read an entry of {str(args.get('entry', '')).partition('/')[0]}"
    if tool == "spend":
        texts = ((key, f"{value:,g}" if isinstance(value, (int, float)) else value) for key, value in args.items())
        amounts = [f"${text}" if key == "dollars" else f"{text} {key}" for key, text in texts if key != "of"]
        return f"spend {' and '.join(amounts)} more than its limit" if amounts else "spend more than its limit"
    payload = args.get("payload")
    readers = sorted(parse_references(payload.get("target"))) if isinstance(payload, Mapping) else []
    return f"send a {args.get('kind', 'message')} to {' and '.join(readers) or 'all its readers'}"


def _describe_generic_call(tool: str, names: Mapping[str, str]) -> str:
    arguments = ", ".join(f"{key} = {value}" for key, value in names.items())
    return f"call {tool} with {truncate_value(arguments)}" if arguments else f"call {tool}"


def entry_text(payload: Mapping[str, Any]) -> str:
    """Return the text of an entry, the described call of an approval request, or an empty string.

    >>> call = dict(tool="shell", args={"command": "ls"}, gate="config/org.json#/gates/0")
    >>> entry_text(dict(text="shell: ...", call=call))
    'wants to run `ls`'
    """
    call, text = payload.get("call"), payload.get("text")
    if is_approval_request(payload) and isinstance(call, Mapping) and isinstance(args := call.get("args"), Mapping):
        return f"wants to {describe_call(str(call.get('tool')), args)}"
    return text if isinstance(text, str) else ""


def describe_entry(payload: Mapping[str, Any]) -> str:
    """Return an entry as a sentence: its text or its other fields, and its target.

    >>> describe_entry(dict(text="hello", target="ada")), describe_entry(dict(decision="deny"))
    ('hello  (to ada)', 'denied it')
    """
    text = payload.get("text")
    if isinstance(text, str) and not is_approval_request(payload):
        sentence = text
    else:
        sentence = entry_text(payload) or describe_payload(payload) or to_line(payload)
    target = payload.get("target")
    return f"{sentence}  (to {target})" if isinstance(target, str) else sentence


AGENT_STATES: Mapping[str, str] = {
    "waits": "waiting",
    "out_of_credits": "may not spend",
    "due": "idle",
    "news": "idle",
    "not_due": "idle",
    "nothing_new": "idle",
    "begun": "interrupted",
    "ended": "done",
}
"""Words for the states of agents whose code is not the word."""


class EffectSentence(NamedTuple):
    """An effect of a turn in words.

    `label`: entry, memory, file, removed, judged, remark or notes. `kind`: the kind of the entry, or the label.
    `target`: the file or memory that `why` traces, or empty.
    """

    label: str
    kind: str
    subject: str
    text: str
    target: str = ""


def describe_effects(turn: RecordedTurn) -> Iterator[EffectSentence]:
    """Yield the effects of a turn in words: what it wrote and removed, then what its judges and itself remark."""
    for entry in turn.entries:
        sentence = describe_entry(entry.payload)
        yield EffectSentence("entry", entry.kind, entry.id, sentence, entry.file)
    for key, value in turn.memory.items():
        yield EffectSentence("memory", "memory", key, to_text(value), f"{turn.agent}/memory/{key}")
    for path, effect in turn.writes.items():
        size = f"{len(effect.content):,} bytes, sha256 {effect.digest[:12]}"
        yield EffectSentence("file", "file", path, size, path)
    report = turn.report
    if report is None:
        return
    for path in report.removed:
        yield EffectSentence("removed", "removed", path, "")
    for verdict in report.judged["verdicts"] if report.judged else ():
        result = "passed" if verdict["passes"] else f"failed: {verdict['reason']}"
        yield EffectSentence("judged", "judged", "", f"by {verdict['by']}, {result}")
    for remark in report.remarks:
        yield EffectSentence("remark", "remark", "", remark)
    if report.notes:
        yield EffectSentence("notes", "notes", "", report.notes)


def summarize_report(report: Mapping[str, Any], *, with_entries: bool = True) -> str:
    """Return a turn's report in words: entries, tools, files, memories and remarks.

    >>> summarize_report({"entries": [{}], "tools": [{"tool": "shell", "success": False}], "memory": ["goal"]})
    'wrote 1 entry; shell (refused or failed); remembered goal'
    """
    entries, tools = len(report.get("entries") or ()) if with_entries else 0, report.get("tools") or ()
    paths = (str(file["path"] if isinstance(file, dict) else file) for file in report.get("files") or ())
    files = [path.rpartition("/")[2] for path in paths if "/outbox/" not in path and "/memory/" not in path]
    parts = [f"wrote {format_count(entries, 'entry', 'entries')}"] if entries else []
    for use in tools:
        failure = " (waiting)" if use.get("outcome") in ("pending", "deferred") else " (refused or failed)"
        parts.append(f"{use['tool']}{'' if use['success'] else failure}")
    parts += [f"wrote {', '.join(files)}"] if files else []
    parts += [f"remembered {', '.join(report['memory'])}"] if report.get("memory") else []
    return "; ".join([*parts, *(report.get("remarks") or ())])


def describe_payload(payload: Mapping[str, Any]) -> str:
    """Return a description of the payload fields besides the text and the addressing.

    >>> describe_payload(dict(decision="approve", args={"path": "b.txt"}))
    'approved it, with path = b.txt instead'
    >>> describe_payload(dict(ok=True, reply_to="x"))
    'ok: yes'
    """
    if decision := payload.get("decision"):
        return _describe_decision(str(decision), payload)
    if payload.get("status") in ("refused", "failed"):
        return f"{payload['status']} it{_format_reason(payload.get('reason'))}"
    if "cancels" in payload:
        return "took the request back"
    fields = {key: field_value for key, field_value in payload.items() if key not in ADDRESSING}
    return "; ".join(f"{key}: {truncate_value(value)}" for key, value in fields.items())


def entry_to_message(entry: OutboxEntry, chars: int) -> Json:
    """Return an entry as shown on every screen, with a shortened text; `says` describes the other payload fields."""
    text = entry_text(entry.payload)
    return {
        "identity": entry.identity,
        "id": entry.id,
        "agent": entry.agent,
        "tick": entry.tick,
        "kind": entry.kind,
        "text": text[:chars],
        "says": describe_payload(entry.payload),
        "chars": len(text),
        "at": entry.created_at,
        "file": entry.file,
    }


ADDRESSING = frozenset({"text", "target", "reply_to", "conversation", "parent", "schema", "call", "join"})
"""Keys of a payload that name its target and its context."""


def _describe_decision(decision: str, payload: Mapping[str, Any]) -> str:
    args = payload.get("args")
    match decision:
        case "approve" if isinstance(args, dict):
            changed_args = ", ".join(f"{key} = {truncate_value(value)}" for key, value in args.items())
            return f"approved it, with {truncate_value(changed_args)} instead"
        case "approve":
            return "approved it"
        case "answer":
            return f"gave the result instead: {truncate_value(payload.get('answer'))}"
    return f"denied it{_format_reason(payload.get('reason'))}"


def _format_reason(reason: object) -> str:
    return f": {truncate_value(reason)}" if reason else ""


def truncate_value(value: object, max_chars: int = MAX_VALUE_CHARS) -> str:
    """Return a value on a single line, shortened to `max_chars` characters.

    >>> truncate_value(True), truncate_value({"a": 1}), truncate_value("two  \\n lines")
    ('yes', '{"a": 1}', 'two lines')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shorten_line(value if isinstance(value, str) else to_line(value), max_chars)
