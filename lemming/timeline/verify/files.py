"""Every file against the journals: what is damaged, gone, not accounted for, or edited by a person.

The journals are chained by checksums, so damage in them shows in themselves. A file is held against the last
turn that wrote it. What a person may change (memories, workspaces, shared files, resumes) is a note when it
has been changed and an error when it can no longer be read; a change of an entry or a ledger is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lemming.base import paths
from lemming.base.errors import CorruptState, DiskError
from lemming.base.jsontext import JsonProblem, parse
from lemming.capabilities.store.values import is_store_file
from lemming.files import fs
from lemming.files.documents import why_unreadable
from lemming.journal.file import read_journal
from lemming.journal.ledger import FILE_LIMIT_BYTES, LINE_LIMIT_BYTES
from lemming.journal.records import ToolFinished
from lemming.memory import decode_memory
from lemming.messages import names_in
from lemming.org.organisation import OrgPath
from lemming.plugins.capabilities import may_be_removed
from lemming.tick.counter import load_tick
from lemming.timeline.verify.root import file_digest, file_digests, root_of
from lemming.timeline.verify.told import Mismatch, Told, Written, read_told

LARGEST_READ_BYTES = 64 << 20


@dataclass(frozen=True)
class Verification:
    """What was checked and found. `findings` are sorted: the first one names the first tick and file."""

    findings: tuple[Mismatch, ...]
    ticks: int
    turns: int
    files: int
    root: str
    skimmed: int = 0
    """Of so many journals, the oldest, only the checksums and the lines that name files were checked."""

    @property
    def errors(self) -> list[Mismatch]:
        """The findings that are no mere notes."""
        return [finding for finding in self.findings if finding.is_error]


def verify(base: OrgPath, ticks: list[int] | None = None, *, newest: int | None = None) -> Verification:
    """Check the files that turns of these ticks (default: all) wrote, their journals, and the ledgers.

    With `newest`, only so many journals are taken apart; of those before, the checksums and what names files
    are checked. Nothing is written and nothing is locked. Raises `DiskError` when a file cannot be read.
    """
    told = read_told(base, newest=newest)
    digests = file_digests(base)
    findings = [
        *told.findings,
        *_file_findings(base, told, digests),
        *_outbox_findings(told, digests),
        *ledger_findings(base, told),
        *_clock_findings(base, told),
    ]
    chosen = set(told.ticks if ticks is None else ticks)
    kept = [f for f in findings if ticks is None or f.tick in chosen]
    kept.sort(key=lambda finding: (finding.tick, finding.file))
    files = sum(written.tick in chosen for written in told.files.values())
    turns = sum(tick in chosen for turns in told.turns.values() for tick in turns)
    return Verification(tuple(kept), len(chosen), turns, files, root_of(digests), told.skimmed)


# --- files -------------------------------------------------------------------------------------


def _file_findings(base: OrgPath, told: Told, digests: dict[str, str]) -> Iterator[Mismatch]:
    for file, written in told.files.items():
        if told.may_be_under_way(file):
            continue
        try:
            digest = digests.get(file) or file_digest(base, file)
        except DiskError as error:
            yield Mismatch(written.tick, file, "damage", error.message)
            continue
        if digest is None and may_be_removed(file):
            continue
        if digest is None:
            yield _missing(base, told, file, written)
        elif digest != written.sha256:
            yield _changed(base, told, file, written)


def _missing(base: OrgPath, told: Told, file: str, written: Written) -> Mismatch:
    is_error = _is_entry(file) and (base / paths.agent_folder(written.agent)).is_dir()
    message = f"is gone; {written.agent} wrote it in tick {written.tick}"
    later = next((tick for tick in sorted([*told.damaged, *told.gone]) if tick > written.tick), None)
    if is_error and later is not None:
        message += f"; retention may have removed it in tick {later}, whose journal cannot be read"
    elif is_error:
        message += " and retention has not removed it"
    return Mismatch(written.tick, file, "missing", message, is_error=is_error and later is None)


def _changed(base: OrgPath, told: Told, file: str, written: Written) -> Mismatch:
    """Tell damage from an edit: damage does not parse, is cut short, or is all zeros; the rest is edits."""
    raw = fs.read_bytes(base / file, LARGEST_READ_BYTES)
    since = f"since {written.agent} wrote it in tick {written.tick}"
    if why := _damage(raw, file, _recorded_text(base, file, written)):
        return Mismatch(written.tick, file, "damage", f"is damaged {since}: {why}")
    if _is_entry(file):
        return Mismatch(written.tick, file, "edited", f"has been changed {since}; an entry never changes")
    if file.startswith(f"{paths.TRUST}/"):
        return Mismatch(
            written.tick, file, "edited", f"has been changed {since}; what is trusted is vouched for"
        )
    later = next((tick for tick in told.damaged if tick > written.tick), None)
    unless = f" (or by tick {later}, whose journal is damaged)" if later is not None else ""
    return Mismatch(
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


def _recorded_text(base: OrgPath, file: str, written: Written) -> bytes | None:
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


def _outbox_findings(told: Told, digests: dict[str, str]) -> Iterator[Mismatch]:
    """Yield the entries that claim to be a turn's and that no turn wrote."""
    unwritten: dict[str, list[str]] = {}
    for file in filter(_is_entry, digests.keys() - told.files.keys()):
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
                yield Mismatch(name.tick, name.file, "unaccounted", message, is_error=False)
                continue
            yield Mismatch(name.tick, name.file, "unaccounted", message)


# --- the tick counter --------------------------------------------------------------------------


def _clock_findings(base: OrgPath, told: Told) -> Iterator[Mismatch]:
    if not told.ticks:
        return
    last = told.ticks[-1]
    try:
        tick = load_tick(base)
    except CorruptState as error:
        yield Mismatch(last, paths.TICK_FILE, "damage", f"{error.message}; {error.hint}")
        return
    earliest = last if told.last_may_be_open else last + 1
    if last not in told.damaged and tick < earliest:  # later is right: quiet ticks have no journal
        message = f"says {tick}, but the last journal is of tick {last}"
        yield Mismatch(last, paths.TICK_FILE, "edited", message)


# --- ledgers -------------------------------------------------------------------------------------
# Every line that is still kept, and the lines that should be.


def ledger_findings(base: OrgPath, told: Told) -> Iterator[Mismatch]:
    """Yield what is wrong with the ledgers of all agents whose turns the journals tell."""
    # An agent whose folder is gone may have a new name, and its old ledger.
    renamed = [
        turns for agent, turns in told.turns.items() if not (base / paths.agent_folder(agent)).is_dir()
    ]
    for agent, turns in told.turns.items():
        if agent not in told.under_way:
            yield from _findings_of(base, told, agent, turns, renamed)


def _findings_of(
    base: OrgPath,
    told: Told,
    agent: str,
    turns: dict[int, dict[str, Any]],
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    file, last = paths.ledger_file(agent), max(turns)
    try:
        raw = fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        is_error = (base / paths.agent_folder(agent)).is_dir()
        yield Mismatch(last, file, "missing", f"is gone; {agent} has had turns", is_error=is_error)
        return
    except OSError as error:
        yield Mismatch(last, file, "damage", why_unreadable(error))
        return
    if len(raw) > FILE_LIMIT_BYTES:
        yield Mismatch(last, file, "damage", f"is larger than the {FILE_LIMIT_BYTES >> 20} MiB of a ledger")
        return
    *whole, rest = raw.split(b"\n")
    lines: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(whole, 1):
        try:
            plain = parse(line, limit_bytes=LINE_LIMIT_BYTES)
            lines[plain["tick"]] = plain
        except (JsonProblem, KeyError, TypeError) as error:
            before = max(lines, default=min(turns))
            yield Mismatch(
                before, file, "damage", f"line {number}, after tick {before}, is not a turn: {error}"
            )
    yield from _compare(file, lines, turns, told, renamed)
    if rest and last in lines:
        yield Mismatch(last, file, "damage", f"{len(rest)} bytes at its end are no whole line")


def _compare(
    file: str,
    lines: dict[int, dict[str, Any]],
    turns: dict[int, dict[str, Any]],
    told: Told,
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    """Hold a ledger's lines against the turns; `renamed` are turns that may have been its own before."""
    oldest = min(lines, default=min(turns))
    for tick, expected in turns.items():
        if tick < oldest:  # a ledger keeps its newest lines
            continue
        line = lines.get(tick)
        if line is None:
            yield Mismatch(tick, file, "missing", f"has no line for tick {tick}, in which there was a turn")
            continue
        if not _says(line, expected):
            key = next(key for key, value in expected.items() if line.get(key) != value)
            message = f"says {key} {line.get(key)!r} after tick {tick}; the journals say {expected[key]!r}"
            yield Mismatch(tick, file, "edited", message)
    for tick in lines.keys() - turns.keys():
        if (
            tick in told.ticks
            and tick not in told.damaged
            and not any(_says(lines[tick], former[tick]) for former in renamed if tick in former)
        ):
            yield Mismatch(
                tick, file, "unaccounted", f"has a line for tick {tick}, in which there was no turn"
            )


def _says(line: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(line.get(key) == value for key, value in expected.items())
