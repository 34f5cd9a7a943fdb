"""What a recorded turn was shown, read back from its prompt.

The prompt is the record of what a turn saw. The full form names every entry and memory as JSON; the brief
form, for very small models, shows bare lines, so there the names are told from the lines' beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.paths import place_of
from lemming.kernel.messages import names_of
from lemming.timeline.record import TurnRecord

# A section's mark is made from its text, so nothing inside the text can end it.
_SECTION = re.compile(r"^# ([^\n]*)\n<<<DATA ([0-9a-f]{10}|[0-9a-f]{32})\n(.*?)\n\2 DATA>>>", re.M | re.S)
_TRUST = r"[a-z][a-z0-9_-]*"
_LABEL = re.compile(rf"\[trust: {_TRUST}\] ")
_TITLE = re.compile(rf" \(trust: {_TRUST}\)\Z")
_ENTRY = re.compile(
    r'\{(?:"trust": "[a-z][a-z0-9_-]*", )?"id": "([A-Za-z0-9]+)", "from": "([a-z0-9_-]+)", "tick": (\d+), '
)
_FILE, _NEW, _MEMORY = "File: ", "New entries", "memory "
_FIRST_SEEN = (_NEW, "Asked of you", "Answers to what you asked")
_ENTRY_SECTIONS = (
    *_FIRST_SEEN,
    "Said before in this conversation",
    "Entries you have seen before",
    "Your own latest entries",
)


@dataclass(frozen=True, kw_only=True)
class SeenEntry:
    """An entry in a prompt. The brief form tells neither author nor tick nor text: they are None there."""

    id: str
    author: str | None = None
    tick: int | None = None
    payload: Any = None
    is_new: bool = True


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a turn saw. `memory` and `files` hold what was shown of each, under its key or its path.

    `is_brief`: texts were shortened, and a name may be a misreading of somebody's text.
    """

    entries: list[SeenEntry] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    is_brief: bool = False


def sight_of(turn: TurnRecord, agents: Collection[str]) -> Shown:
    """Return what a turn's first prompt showed; `agents` are all names of that tick."""
    if not turn.started:
        return Shown()
    last = turn.started.prompt[-1]["content"] if turn.started.prompt else ""
    files = list(_context_files(turn))
    if turn.started.form:
        return _fit_sight(turn, last, files)
    if not last.startswith("# Your memory\n"):
        return _brief_sight(turn, last, files, agents)
    is_tracked = "trust" in turn.started.given
    sections = [
        (_TITLE.sub("", match[1]) if is_tracked else match[1], match[3]) for match in _SECTION.finditer(last)
    ]
    labels = {f"{_FILE}{label}": path for path, label in files}
    entries = [
        _seen_entry(line, is_new=title.startswith(_FIRST_SEEN))
        for title, text in sections
        if title.startswith(_ENTRY_SECTIONS)
        for line in text.split("\n")
        if _ENTRY.match(line)
    ]
    return Shown(
        entries=entries + _missing(entries, turn),
        memory=dict(_memories(next((text for title, text in sections if title == "Your memory"), ""))),
        files={
            **dict.fromkeys(labels.values(), ""),
            **{labels[title]: text for title, text in sections if title in labels},
        },
    )


def _missing(entries: Collection[SeenEntry], turn: TurnRecord) -> list[SeenEntry]:
    """Return what is not among these of the request that the turn was for: itself, answers to what was asked.

    In a prompt an answer is the result of a call. One that was approved leads to the turn that asked for it.
    """
    assert turn.started is not None
    task = turn.started.task or {}
    asked = task.get("begun", {}).get("asked", [])
    identities = [task.get("request"), *(one.get("answer") for one in asked)]
    identities += [one["request"] for one in asked if one.get("held")]
    known = names_of([identity for identity in identities if identity])
    told = {entry.id for entry in entries}
    return [
        SeenEntry(id=name.id, author=name.author, tick=name.tick)
        for name in sorted(known)
        if name.id not in told
    ]


def _seen_entry(line: str, *, is_new: bool) -> SeenEntry:
    match = _ENTRY.match(line)
    assert match is not None
    try:
        payload = parse(line)["payload"]
    except (JsonProblem, KeyError):  # a long one is cut
        payload = None
    return SeenEntry(id=match[1], author=match[2], tick=int(match[3]), payload=payload, is_new=is_new)


def _memories(text: str) -> Iterator[tuple[str, Any]]:
    for line in text.split("\n"):
        try:
            plain = parse(line)
        except JsonProblem:  # the remark on those that were too long to show
            continue
        if isinstance(plain, dict) and "key" in plain:
            yield plain["key"], plain.get("value")


def _context_files(turn: TurnRecord) -> Iterator[tuple[str, str]]:
    """Yield the place and the label of each file that the resume puts into every prompt."""
    resume = turn.started.resume if turn.started else {}
    for item in resume.get("context", []):
        label = item.get("label") or PurePosixPath(item["file"]).name
        is_memory = "owner" in item  # of another agent, by a grant
        yield item["file"] if is_memory else place_of(turn.agent, item["file"]), label


def _fit_sight(turn: TurnRecord, text: str, files: list[tuple[str, str]]) -> Shown:
    """Return what a prompt in a small form showed: each part begins with its name and a colon."""
    is_tracked = turn.started is not None and "trust" in turn.started.given
    parts: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        if line.startswith("> "):
            parts[name] = f"{parts[name]}\n{line[2:]}" if parts.get(name) else line[2:]
            continue
        told = _LABEL.sub("", line, count=1) if is_tracked else line
        name, _, rest = told.partition(":")
        parts[name] = _text_in(rest.strip())
    entries = [SeenEntry(id=identity) for identity in turn.shown]
    memories = {name.removeprefix(_MEMORY): text for name, text in parts.items() if name.startswith(_MEMORY)}
    return Shown(
        entries=entries + _missing(entries, turn),
        memory=memories,
        files={path: parts.get(label, "") for path, label in files},
        is_brief=True,
    )


def _text_in(quoted: str) -> str:
    """Return the text of a JSON string; anything else as it is."""
    try:
        value = parse(quoted)
    except JsonProblem:
        return quoted
    return value if isinstance(value, str) else quoted


def _brief_sight(turn: TurnRecord, text: str, files: list[tuple[str, str]], agents: Collection[str]) -> Shown:
    labels = {label: path for path, label in files}
    shown: dict[str, str] = {}
    is_tracked = turn.started is not None and "trust" in turn.started.given
    for line in text.split("\n"):
        name, colon, rest = (_LABEL.sub("", line, count=1) if is_tracked else line).partition(": ")
        name = _TITLE.sub("", name) if is_tracked else name
        if colon and name not in shown:
            shown[name] = rest
    entries = [SeenEntry(id=identity) for identity in turn.shown]
    return Shown(
        entries=entries + _missing(entries, turn),
        memory={
            name: rest
            for name, rest in shown.items()
            if paths.MEMORY_KEY.match(name) and name not in labels and name not in agents
        },
        files={path: shown.get(label, "") for label, path in labels.items()},
        is_brief=True,
    )
