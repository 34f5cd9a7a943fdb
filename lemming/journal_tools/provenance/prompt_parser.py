"""Parses the prompt of a recorded turn into entries, memories and files.

The prompt is the record of the content visible to a turn. The full form contains every entry and memory as JSON. The
brief form, for very small models, contains bare lines; names are then taken from the beginnings of the lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTurn
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.messages import parse_identities
from lemming.libraries.lenient_json import parse_object_or_empty, parse_or_default

# A section's mark is made from its text, so nothing inside the text can end it.
_SECTION = re.compile(r"^# ([^\n]*)\n<<<DATA ([0-9a-f]{10}|[0-9a-f]{32})\n(.*?)\n\2 DATA>>>", re.M | re.S)
_TRUST = r"[a-z][a-z0-9_-]*"
_LABEL = re.compile(rf"\[trust: {_TRUST}\] ")
_TITLE = re.compile(rf" \(trust: {_TRUST}\)\Z")
_ENTRY = re.compile(
    r'\{(?:"trust": "[a-z][a-z0-9_-]*", )?"id": "([A-Za-z0-9]+)", "from": "([a-z0-9_-]+)", "tick": (\d+), '
)
_FILE, _NEW, _MEMORY = "File: ", "New entries", "memory "
_NEW_ENTRY_SECTIONS = (_NEW, "Asked of you", "Answers to what you asked")
_ENTRY_SECTIONS = (
    *_NEW_ENTRY_SECTIONS,
    "Said before in this conversation",
    "Entries you have seen before",
    "Your own latest entries",
)


@dataclass(frozen=True, kw_only=True)
class ShownEntry:
    """An entry in a prompt. In the brief form author, tick and text are unknown and None."""

    id: str
    author: str | None = None
    tick: int | None = None
    payload: Any = None
    is_new: bool = True


@dataclass(frozen=True, kw_only=True)
class ParsedPrompt:
    """The content of a prompt. `memory` and `files` contain the visible texts, by key and by path.

    `is_brief`: texts were shortened, and a name may come from a misread text.
    """

    entries: list[ShownEntry] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    is_brief: bool = False


def parse_prompt(turn: RecordedTurn, agents: Collection[str]) -> ParsedPrompt:
    """Return the content of a turn's first prompt; `agents` contains all names in the tick."""
    started = turn.started
    if not started:
        return ParsedPrompt()
    text = started.prompt[-1]["content"] if started.prompt else ""
    files, is_tracked = list(_iter_context_files(turn, started)), "trust" in started.given
    if started.form or not text.startswith("# Your memory\n"):
        parts = _parse_small_parts(text, is_tracked) if started.form else _parse_brief_lines(text, is_tracked)
        if started.form:
            memory = {name.removeprefix(_MEMORY): parts[name] for name in parts if name.startswith(_MEMORY)}
        else:
            other_names = {*agents, *(label for _, label in files)}
            memory = {name: parts[name] for name in parts if paths.MEMORY_KEY.match(name) and name not in other_names}
        entries = [ShownEntry(id=identity) for identity in turn.visible_entry_ids]
        visible_files = {path: parts.get(label, "") for path, label in files}
        prompt = ParsedPrompt(entries=entries, memory=memory, files=visible_files, is_brief=True)
    else:
        prompt = _parse_full_prompt(text, files, is_tracked)
    return replace(prompt, entries=prompt.entries + _find_missing_entries(prompt.entries, started))


def _parse_full_prompt(prompt: str, files: list[tuple[str, str]], is_tracked: bool) -> ParsedPrompt:
    sections = [(_TITLE.sub("", match[1]) if is_tracked else match[1], match[3]) for match in _SECTION.finditer(prompt)]
    labels = {f"{_FILE}{label}": path for path, label in files}
    visible_files = {labels[title]: text for title, text in sections if title in labels}
    entries = [
        _parse_entry_line(line, is_new=title.startswith(_NEW_ENTRY_SECTIONS))
        for title, text in sections
        if title.startswith(_ENTRY_SECTIONS)
        for line in text.split("\n")
        if _ENTRY.match(line)
    ]
    return ParsedPrompt(
        entries=entries,
        memory=dict(_parse_memories(next((text for title, text in sections if title == "Your memory"), ""))),
        files={**dict.fromkeys(labels.values(), ""), **visible_files},
    )


def _find_missing_entries(entries: Collection[ShownEntry], started: TurnStarted) -> list[ShownEntry]:
    """Return the entries of the turn's request that are not in `entries`: the request and the answers to sub-requests.

    In a prompt an answer appears as the result of a call. An approved call leads to the turn that requested approval.
    """
    task = started.task or {}
    sub_requests = task.get("begun", {}).get("asked", [])
    identities = [task.get("request"), *(sub_request.get("answer") for sub_request in sub_requests)]
    identities += [sub_request["request"] for sub_request in sub_requests if sub_request.get("held")]
    entry_names = parse_identities([identity for identity in identities if identity])
    known_ids = {entry.id for entry in entries}
    new_names = [name for name in sorted(entry_names) if name.id not in known_ids]
    return [ShownEntry(id=name.id, author=name.author, tick=name.tick) for name in new_names]


def _parse_entry_line(line: str, *, is_new: bool) -> ShownEntry:
    match = _ENTRY.match(line)
    assert match is not None
    try:
        payload = parse(line)["payload"]
    except (JsonProblem, KeyError):  # a long one is cut
        payload = None
    return ShownEntry(id=match[1], author=match[2], tick=int(match[3]), payload=payload, is_new=is_new)


def _parse_memories(text: str) -> Iterator[tuple[str, Any]]:
    for line in text.split("\n"):
        memory = parse_object_or_empty(line)
        if "key" in memory:  # not in the note on entries that were too long to show
            yield memory["key"], memory.get("value")


def _iter_context_files(turn: RecordedTurn, started: TurnStarted) -> Iterator[tuple[str, str]]:
    for item in started.resume.get("context", []):
        label = item.get("label") or PurePosixPath(item["file"]).name
        is_memory = "owner" in item  # of another agent, by a grant
        yield item["file"] if is_memory else paths.resolve_agent_path(turn.agent, item["file"]), label


def _parse_small_parts(text: str, is_tracked: bool) -> dict[str, str]:
    """Return the parts of a prompt in a small form by name, the text before a colon."""
    parts: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        if line.startswith("> "):
            parts[name] = f"{parts[name]}\n{line[2:]}" if parts.get(name) else line[2:]
            continue
        unlabelled = _LABEL.sub("", line, count=1) if is_tracked else line
        name, _, text_after = unlabelled.partition(":")
        parts[name] = _unquote_text(text_after.strip())
    return parts


def _unquote_text(quoted: str) -> str:
    """Return the text of a JSON string; any other text is returned unchanged."""
    value = parse_or_default(quoted, None)
    return value if isinstance(value, str) else quoted


def _parse_brief_lines(text: str, is_tracked: bool) -> dict[str, str]:
    """Return the lines of a brief prompt by the name before the colon, the first line of each name."""
    texts_by_name: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, text_after = (_LABEL.sub("", line, count=1) if is_tracked else line).partition(": ")
        if colon:
            texts_by_name.setdefault(_TITLE.sub("", name) if is_tracked else name, text_after)
    return texts_by_name
