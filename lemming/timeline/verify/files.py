"""Every file against the journals: what is damaged, gone, not accounted for, or edited by a person.

The journals are chained by checksums, so damage in them shows in themselves. A file is held against the last
turn that wrote it. What a person may change (memories, workspaces, shared files, resumes) is a note when it
has been changed and an error when it can no longer be read; a change of an entry or a ledger is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lemming.capabilities.store.values import is_store_file
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.documents import why_unreadable
from lemming.kernel.journal.file import read_journal
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES, LINE_LIMIT_BYTES
from lemming.kernel.journal.records import ToolFinished
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import names_in
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import may_be_removed
from lemming.kernel.tick.counter import load_tick
from lemming.timeline.verify.journal_facts import (
    JournalFacts,
    Mismatch,
    WrittenFile,
    mismatch,
    read_journal_facts,
)
from lemming.timeline.verify.root import Steps, file_digest, file_digests, root_of

LARGEST_READ_BYTES = 64 << 20


@dataclass(frozen=True)
class Verification:
    """What was checked and found. `findings` are sorted: the first one names the first tick and file.

    `root` is None where not every file was read.
    """

    findings: tuple[Mismatch, ...]
    ticks: int
    turns: int
    files: int
    root: str | None
    skimmed: int = 0
    """Of so many journals, the oldest, only the checksums and the lines that name files were checked."""

    @property
    def errors(self) -> list[Mismatch]:
        """The findings that are no mere notes."""
        return [finding for finding in self.findings if finding.is_error]


class Records:
    """What the journals tell, and what the files are, each read once; and what is wrong with either.

    `newest`: so many journals are taken apart; of those before, the checksums and what names files are
    checked. `only`: no more than so many are looked at, the newest, and the files that their turns wrote.
    Nothing is written and nothing is locked. Raises `DiskError` when a file cannot be read.
    """

    def __init__(
        self, base: OrgPath, newest: int | None, only: int | None = None, steps: Steps = lambda *_: None
    ) -> None:
        self.base, self.only, self._newest, self._steps = base, only, newest, steps

    @cached_property
    def told(self) -> JournalFacts:
        """What the journals tell."""
        return read_journal_facts(self.base, newest=self._newest, only=self.only, steps=self._steps)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file that counts; of `only` a few journals none, they are read as needed."""
        return file_digests(self.base, self._steps) if self.only is None else {}

    @cached_property
    def root(self) -> str | None:
        """The state root; None where not every file is read."""
        return root_of(self.digests) if self.only is None else None

    def verification(self, findings: Iterable[Mismatch], ticks: list[int] | None = None) -> Verification:
        """Return what was checked, and these findings, those that are about these ticks (default: all)."""
        told, chosen = self.told, set(self.told.ticks if ticks is None else ticks)
        kept = [it for it in findings if ticks is None or it.tick in chosen]
        kept.sort(key=lambda finding: (finding.tick, finding.file))
        files = sum(written.tick in chosen for written in told.files.values())
        turns = sum(tick in chosen for turns in told.turns.values() for tick in turns)
        turns += sum(count for tick, count in told.further_turns.items() if tick in chosen)
        return Verification(tuple(kept), len(chosen), turns, files, self.root, told.skimmed)


def verify(base: OrgPath, ticks: list[int] | None = None, *, newest: int | None = None) -> Verification:
    """Check the files that turns of these ticks (default: all) wrote, their journals, and the ledgers."""
    records = Records(base, newest)
    return records.verification((it for find in PARTS.values() for it in find(records)), ticks)


# --- files -------------------------------------------------------------------------------------


def _file_findings(records: Records) -> Iterator[Mismatch]:
    base, told, digests = records.base, records.told, records.digests
    for file, written in told.files.items():
        # a turn that has not ended may write it at this moment
        if told.may_be_under_way(file):
            continue
        try:
            digest = digests.get(file) or file_digest(base, file)
        except DiskError as error:
            yield mismatch(written.tick, file, "damage", error.message)
            continue
        if digest is None and may_be_removed(file):  # people and tools may
            continue
        if digest is None:
            yield _missing(base, told, file, written)
        elif digest != written.sha256:
            yield _changed(base, told, file, written)


def _missing(base: OrgPath, told: JournalFacts, file: str, written: WrittenFile) -> Mismatch:
    is_error = _is_entry(file) and (base / paths.agent_folder(written.agent)).is_dir()
    message = f"is gone; {written.agent} wrote it in tick {written.tick}"
    later = next((tick for tick in sorted([*told.damaged, *told.gone]) if tick > written.tick), None)
    if is_error and later is not None:
        message += f"; retention may have removed it in tick {later}, whose journal cannot be read"
    elif is_error:
        message += " and retention has not removed it"
    return mismatch(written.tick, file, "missing", message, is_error=is_error and later is None)


def _changed(base: OrgPath, told: JournalFacts, file: str, written: WrittenFile) -> Mismatch:
    """Tell damage from an edit: damage does not parse, is cut short, or is all zeros; the rest is edits."""
    raw = fs.read_bytes(base / file, LARGEST_READ_BYTES)
    since = f"since {written.agent} wrote it in tick {written.tick}"
    if why := _damage(raw, file, _recorded_text(base, file, written)):
        return mismatch(written.tick, file, "damage", f"is damaged {since}: {why}")
    if _is_entry(file):
        return mismatch(written.tick, file, "edited", f"has been changed {since}; an entry never changes")
    if file.startswith(f"{paths.TRUST}/"):
        return mismatch(
            written.tick, file, "edited", f"has been changed {since}; what is trusted is vouched for"
        )
    later = next((tick for tick in told.damaged if tick > written.tick), None)
    unless = f" (or by tick {later}, whose journal is damaged)" if later is not None else ""
    return mismatch(
        written.tick,
        file,
        "edited",
        f"has been changed {since}, by hand or by a tool{unless}",
        is_error=False,
    )


def _damage(raw: bytes, file: str, recorded: bytes | None) -> str:
    if not raw:
        return "it is empty"
    if not raw.strip(b"\0"):
        return "it holds nothing but zeros"
    if recorded is not None and len(raw) < len(recorded) and recorded.startswith(raw):
        return f"it is cut off after {len(raw)} of {len(recorded)} bytes"
    if _is_memory(file) or is_store_file(file):
        return _why_no_memory(raw, file)
    if file.endswith(".json") and (recorded is None or not _why_no_json(recorded)):
        return _why_no_json(raw)
    return ""


def _why_no_memory(raw: bytes, file: str) -> str:
    try:
        decode_memory(raw, file)
    except CorruptState as error:
        return error.message
    return ""


def _why_no_json(raw: bytes) -> str:
    """Return why bytes are no JSON; empty when they are."""
    try:
        parse(raw, limit_bytes=LARGEST_READ_BYTES, allow_bom=True)
    except JsonProblem as error:
        return f"{error.message} (line {error.line})" if error.line else error.message
    return ""


def _recorded_text(base: OrgPath, file: str, written: WrittenFile) -> bytes | None:
    """Return what a tool call wrote there, from its record; None for what no tool wrote."""
    texts: dict[str, str] = {
        effect["path"]: effect["text"]
        for record in read_journal(base, written.tick)
        if isinstance(record, ToolFinished) and record.agent == written.agent
        for effect in record.effects
    }
    return texts[file].encode() if file in texts else None


def _is_entry(file: str) -> bool:
    parts = file.split("/")
    return len(parts) == 4 and parts[0] == "agents" and parts[2] == "outbox"


def _is_memory(file: str) -> bool:
    parts = file.split("/")
    return len(parts) == 4 and parts[0] == "agents" and parts[2] == "memory"


# --- outboxes ----------------------------------------------------------------------------------


def _outbox_findings(records: Records) -> Iterator[Mismatch]:
    """Yield the entries that claim to be a turn's and that no turn wrote."""
    told, files = records.told, {*records.digests}
    if records.only is not None:
        files.update(_entries_since(records.base, told.ticks[:1]))
    unwritten: dict[str, list[str]] = {}
    for file in filter(_is_entry, files - told.files.keys()):
        unwritten.setdefault(file.split("/")[1], []).append(file.split("/")[3])
    for author, names in unwritten.items():
        if not paths.AGENT_NAME.match(author) or author in told.people:
            continue
        for name in names_in(author, names):
            if name.file in told.files or name.tick in told.damaged or told.may_be_under_way(name.file):
                continue
            if name.file in told.expired:
                message = "is back, though retention removed it"
            elif name.is_derived and name.tick in told.ticks:
                message = f"has the id of an entry of tick {name.tick}, but no turn wrote it"
            else:
                message = "was put there by hand, or by a turn whose journal is not here"
                yield mismatch(name.tick, name.file, "unaccounted", message, is_error=False)
                continue
            yield mismatch(name.tick, name.file, "unaccounted", message)


def _entries_since(base: OrgPath, first: list[int]) -> Iterator[str]:
    """Yield the files in outboxes whose names are those of a tick or later ones; none without a tick."""
    for author in agent_folders(base) if first else ():
        with contextlib.suppress(OSError):  # no folder
            folder, oldest = f"agents/{author}/outbox", f"{first[0]:08}"
            yield from (f"{folder}/{file}" for file in fs.list_names(f"{base}/{folder}") if file >= oldest)


# --- the tick counter --------------------------------------------------------------------------


def _clock_findings(records: Records) -> Iterator[Mismatch]:
    told = records.told
    if not told.ticks:
        return
    last = told.ticks[-1]
    try:
        tick = load_tick(records.base)
    except CorruptState as error:
        yield mismatch(last, paths.TICK_FILE, "damage", f"{error.message}; {error.hint}")
        return
    earliest = last if told.last_may_be_open else last + 1
    if last not in told.damaged and tick < earliest:  # later is right: quiet ticks have no journal
        message = f"says {tick}, but the last journal is of tick {last}"
        yield mismatch(last, paths.TICK_FILE, "edited", message)


# --- ledgers -------------------------------------------------------------------------------------
# Every line that is still kept, and the lines that should be.


def _ledger_findings(records: Records) -> Iterator[Mismatch]:
    """Yield what is wrong with the ledgers of all agents whose turns the journals tell."""
    base, told = records.base, records.told
    # An agent whose folder is gone may have a new name, and its old ledger.
    renamed = [
        turns for agent, turns in told.turns.items() if not (base / paths.agent_folder(agent)).is_dir()
    ]
    for agent, turns in told.turns.items():
        if agent not in told.under_way:
            yield from _findings_of(base, told, agent, turns, renamed)


def _findings_of(
    base: OrgPath,
    told: JournalFacts,
    agent: str,
    turns: dict[int, dict[str, Any]],
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    file, last = paths.ledger_file(agent), max(turns)
    try:
        raw = fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        is_error = (base / paths.agent_folder(agent)).is_dir()
        yield mismatch(last, file, "missing", f"is gone; {agent} has had turns", is_error=is_error)
        return
    except OSError as error:
        yield mismatch(last, file, "damage", why_unreadable(error))
        return
    if len(raw) > FILE_LIMIT_BYTES:
        yield mismatch(last, file, "damage", f"is larger than the {FILE_LIMIT_BYTES >> 20} MiB of a ledger")
        return
    *whole, rest = raw.split(b"\n")
    lines: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(whole, 1):
        try:
            plain = parse(line, limit_bytes=LINE_LIMIT_BYTES)
            lines[plain["tick"]] = plain
        except (JsonProblem, KeyError, TypeError) as error:
            before = max(lines, default=min(turns))
            yield mismatch(
                before, file, "damage", f"line {number}, after tick {before}, is not a turn: {error}"
            )
    yield from _compare(file, lines, turns, told, renamed)
    if rest and last in lines:
        yield mismatch(last, file, "damage", f"{len(rest)} bytes at its end are no whole line")


def _compare(
    file: str,
    lines: dict[int, dict[str, Any]],
    turns: dict[int, dict[str, Any]],
    told: JournalFacts,
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    """Hold a ledger's lines against the turns; `renamed` are turns that may have been its own before."""
    oldest = min(lines, default=min(turns))
    for tick, expected in turns.items():
        if tick < oldest:  # a ledger keeps its newest lines
            continue
        line = lines.get(tick)
        if line is None:
            yield mismatch(tick, file, "missing", f"has no line for tick {tick}, in which there was a turn")
            continue
        if not _matches(line, expected):
            key = next(key for key, value in expected.items() if line.get(key) != value)
            message = f"says {key} {line.get(key)!r} after tick {tick}; the journals say {expected[key]!r}"
            yield mismatch(tick, file, "edited", message)
    for tick in lines.keys() - turns.keys():
        if (
            tick in told.ticks
            and tick not in told.damaged
            and not any(_matches(lines[tick], former[tick]) for former in renamed if tick in former)
        ):
            yield mismatch(
                tick, file, "unaccounted", f"has a line for tick {tick}, in which there was no turn"
            )


def _matches(line: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(line.get(key) == value for key, value in expected.items())


PARTS: dict[str, Callable[[Records], Iterable[Mismatch]]] = {
    "journals": lambda records: records.told.findings,
    "written": _file_findings,
    "outboxes": _outbox_findings,
    "ledgers": _ledger_findings,
    "clock": _clock_findings,
}
"""What is asked of journals and files: whether journals are whole, whether each file is what its last turn
wrote, which entries no turn wrote, and whether ledgers and the tick counter say what the journals do."""
