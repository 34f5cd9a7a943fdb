"""Verifies every file against the journals: damaged, missing, unaccounted and edited files.

The journals are chained by checksums, so damage in a journal is visible by itself. A file is compared with the last
turn with a write of the file. A change of a file that people may edit (memories, workspaces, shared files, resumes) is a
note, and an error only if the file can no longer be read; a change of an entry or a ledger is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from hashlib import sha256

from lemming.journal_tools.verify.journal_facts import JournalFacts, WrittenFile, load_journal_facts, make_mismatch
from lemming.journal_tools.verify.state_root import (
    ReportProgress,
    compute_file_digest,
    compute_file_digests,
    compute_state_root,
)
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError, Problem
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import unreadable_reason
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import ToolFinished
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES, LINE_LIMIT_BYTES
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import parse_file_names
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.kernel.plugins.capability_table import TEMPORARY_FILES
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.checks import Check
from lemming.libraries.outbox_files import restore_author
from lemming.libraries.store_values import is_store_file

FILE_READ_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Verification:
    """The result of a verification. `findings` are sorted by tick and file. `root`: None unless every file was read."""

    findings: tuple[Problem, ...]
    ticks: int
    turns: int
    files: int
    root: str | None
    skimmed: int = 0
    """Number of the oldest journals, of which only checksums and lines that name files were checked."""

    @property
    def errors(self) -> list[Problem]:
        """The findings of severity "error"."""
        return [finding for finding in self.findings if finding.is_error]


class VerificationInputs:
    """The contents of the journals and the digests of the files, each read once.

    `newest` and `only` as in `load_journal_facts`. Nothing is written or locked. Raises `DiskError` for an unreadable
    file.
    """

    def __init__(
        self,
        base: OrgPath,
        newest: int | None,
        only: int | None = None,
        steps: ReportProgress = lambda *_: None,
        *,
        uses_all_cores: bool = False,
    ) -> None:
        self.base, self.only, self._newest, self._steps = base, only, newest, steps
        self._uses_all_cores = uses_all_cores

    @cached_property
    def journal_facts(self) -> JournalFacts:
        """The facts from the journals."""
        return load_journal_facts(
            self.base,
            newest=self._newest,
            only=self.only,
            steps=self._steps,
            uses_all_cores=self._uses_all_cores,
        )

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file that counts; empty with `only`, because digests are then computed on demand."""
        if self.only is not None:
            return {}
        return compute_file_digests(self.base, self._steps, uses_all_cores=self._uses_all_cores)

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Map each entry of a renamed agent to the file of its turn. Only the author may differ."""
        facts = self.journal_facts
        missing: dict[str, list[str]] = {}
        for file in filter(_is_entry, facts.files.keys() - self.digests.keys() if self.digests else ()):
            missing.setdefault(file.split("/")[3], []).append(file)
        unwritten = (self.digests.keys() | facts.expired) - facts.files.keys() if missing else ()
        entries = filter(_is_entry, unwritten)
        pairs = ((new, old) for new in entries for old in missing.get(new.split("/")[3], []))
        return {new: old for new, old in pairs if new not in self.digests or self._is_renamed_entry(new, old)}

    def _is_renamed_entry(self, new: str, old: str) -> bool:
        """Return True if an entry has the recorded content, with another author."""
        with contextlib.suppress(OSError):
            raw = fs.read_bytes(self.base / new, FILE_READ_LIMIT_BYTES)
            content = restore_author(new, raw, old.split("/")[1]) or b""
            return sha256(content).hexdigest() == self.journal_facts.files[old].sha256
        return False

    @cached_property
    def state_root(self) -> str | None:
        """The state root, or None unless every file is read."""
        return compute_state_root(self.digests) if self.only is None else None

    def build_report(self, findings: Iterable[Problem], ticks: list[int] | None = None) -> Verification:
        """Return a report with the findings about these ticks (by default all) and the numbers of checked items."""
        facts, chosen = self.journal_facts, set(self.journal_facts.ticks if ticks is None else ticks)
        selected = [mismatch_found for mismatch_found in findings if ticks is None or mismatch_found.tick in chosen]
        selected.sort(key=lambda finding: (finding.tick, finding.file))
        files = sum(written.tick in chosen for written in facts.files.values())
        turns = sum(tick in chosen for turns in (*facts.turns.values(), *facts.former) for tick in turns)
        turns += sum(count for tick, count in facts.later_turns.items() if tick in chosen)
        return Verification(tuple(selected), len(chosen), turns, files, self.state_root, facts.skimmed)


def verify_org(base: OrgPath, ticks: list[int] | None = None, *, newest: int | None = None) -> Verification:
    """Verify the files written in these ticks (by default all), their journals, and the ledgers."""
    inputs = VerificationInputs(Organisation.from_path(base), newest)
    return inputs.build_report((mismatch for check in CHECKS for mismatch in check.find(inputs)), ticks)


# --- files -------------------------------------------------------------------------------------


def _verify_files(inputs: VerificationInputs) -> Iterator[Problem]:
    base, facts, digests = inputs.base, inputs.journal_facts, inputs.digests
    renamed = {*inputs.renamed.values()}
    for file, written in facts.files.items():
        # an unfinished turn may be writing it right now
        if facts.is_possibly_in_progress(file) or file in renamed:
            continue
        try:
            digest = digests.get(file) or compute_file_digest(base, file)
        except DiskError as error:
            yield make_mismatch(written.tick, file, "damage", error.message)
            continue
        if digest is None:
            # a capability may have removed the file after its use
            if not any(fnmatchcase(file, pattern) for pattern in TEMPORARY_FILES):
                yield _missing_mismatch(base, facts, file, written)
        elif digest != written.sha256:
            yield _classify_change(base, facts, file, written)


def _missing_mismatch(base: OrgPath, facts: JournalFacts, file: str, written: WrittenFile) -> Problem:
    begun = facts.begun.get(written.agent, 0)
    is_error = _is_entry(file) and begun <= written.tick and (base / paths.agent_folder(written.agent)).is_dir()
    message = f"does not exist; {written.agent} wrote it in tick {written.tick}"
    if begun > written.tick:
        message = f"does not exist; an earlier {written.agent} wrote it, and a new one began in tick {begun}"
    later = next((tick for tick in sorted([*facts.damaged, *facts.lost_ticks]) if tick > written.tick), None)
    if is_error and later is not None:
        message += f"; retention may have removed it in tick {later}, whose journal cannot be read"
    elif is_error:
        message += " and retention has not removed it"
    return make_mismatch(written.tick, file, "missing", message, is_error=is_error and later is None)


def _classify_change(base: OrgPath, facts: JournalFacts, file: str, written: WrittenFile) -> Problem:
    """Distinguish damage from an edit: damaged files do not parse, are cut short, or contain only zeros."""
    raw = fs.read_bytes(base / file, FILE_READ_LIMIT_BYTES)
    since = f"since {written.agent} wrote it in tick {written.tick}"
    if damage := _describe_damage(raw, file, _load_recorded_text(base, file, written)):
        return make_mismatch(written.tick, file, "damage", f"is damaged {since}: {damage}")
    edited = partial(make_mismatch, written.tick, file, "edited")
    if _is_entry(file):
        return edited(f"has been changed {since}; an entry must never change")
    if file.startswith(f"{paths.TRUST}/"):
        return edited(f"has been changed {since}; a trusted file is endorsed as it was")
    later = next((tick for tick in facts.damaged if tick > written.tick), None)
    alternative = f" (or by tick {later}, whose journal is damaged)" if later is not None else ""
    return edited(f"has been changed {since}, by hand or by a tool{alternative}", is_error=False)


def _describe_damage(raw: bytes, file: str, recorded: bytes | None) -> str:
    if not raw:
        return "it is empty"
    if not raw.strip(b"\0"):
        return "it holds only zeros"
    if recorded is not None and len(raw) < len(recorded) and recorded.startswith(raw):
        return f"it is cut off after {len(raw)} of {len(recorded)} bytes"
    if _is_agent_file(file, "memory") or is_store_file(file):
        try:
            decode_memory(raw, file)
        except CorruptState as error:
            return error.message
    elif file.endswith(".json") and (recorded is None or not _explain_invalid_json(recorded)):
        return _explain_invalid_json(raw)
    return ""


def _explain_invalid_json(raw: bytes) -> str:
    """Return the parse error of bytes that are not JSON, or an empty string."""
    try:
        parse(raw, limit_bytes=FILE_READ_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        return f"{error.message} (line {error.line})" if error.line else error.message
    return ""


def _load_recorded_text(base: OrgPath, file: str, written: WrittenFile) -> bytes | None:
    """Return the recorded content a tool call wrote to a file, or None if no tool wrote the file."""
    texts: dict[str, str] = {
        effect["path"]: effect["text"]
        for record in read_journal(base, written.tick)
        if isinstance(record, ToolFinished) and record.agent == written.agent
        for effect in record.effects
    }
    return texts[file].encode() if file in texts else None


def _is_agent_file(file: str, folder: str) -> bool:
    parts = file.split("/")
    return len(parts) == 4 and parts[0] == "agents" and parts[2] == folder


_is_entry = partial(_is_agent_file, folder="outbox")


# --- outboxes ----------------------------------------------------------------------------------


def _verify_outboxes(inputs: VerificationInputs) -> Iterator[Problem]:
    """Yield entries with the name of a turn's entry that no turn wrote."""
    facts, files = inputs.journal_facts, {*inputs.digests}
    if inputs.only is not None:
        files.update(_list_later_entries(inputs.base, facts.ticks[:1]))
    unwritten: dict[str, list[str]] = {}
    for file in filter(_is_entry, files - facts.files.keys()):
        unwritten.setdefault(file.split("/")[1], []).append(file.split("/")[3])
    for author, names in unwritten.items():
        if not paths.AGENT_NAME.match(author) or author in facts.people:
            continue
        for name in parse_file_names(author, names):
            if (
                name.file in inputs.renamed
                or name.file in facts.files
                or name.tick in facts.damaged
                or facts.is_possibly_in_progress(name.file)
            ):
                continue
            is_error = True
            if name.file in facts.expired:
                message = "exists, though retention removed it"
            elif name.has_engine_id and name.tick in facts.ticks:
                message = f"has the id of an entry of tick {name.tick}, but no turn wrote it"
            else:
                message, is_error = "was written by hand, or by a turn whose journal is missing", False
            yield make_mismatch(name.tick, name.file, "unaccounted", message, is_error=is_error)


def _list_later_entries(base: OrgPath, first: list[int]) -> Iterator[str]:
    """Yield the outbox files of a tick and later ticks; without a tick, yield nothing."""
    for author in list_agent_folders(base) if first else ():
        with contextlib.suppress(OSError):  # no folder
            folder, oldest = f"agents/{author}/outbox", f"{first[0]:08}"
            yield from (f"{folder}/{file}" for file in fs.list_names(f"{base}/{folder}") if file >= oldest)


# --- the tick counter --------------------------------------------------------------------------


def _verify_tick_counter(inputs: VerificationInputs) -> Iterator[Problem]:
    facts = inputs.journal_facts
    if not facts.ticks:
        return
    last = facts.ticks[-1]
    try:
        tick = load_tick(inputs.base)
    except CorruptState as error:
        yield make_mismatch(last, paths.TICK_FILE, "damage", f"{error.message}; {error.hint}")
        return
    earliest = last if facts.last_may_be_open else last + 1
    if last not in facts.damaged and tick < earliest:  # later is right: quiet ticks have no journal
        message = f"says {tick}, but the last journal is of tick {last}"
        yield make_mismatch(last, paths.TICK_FILE, "edited", message)


# --- ledgers -------------------------------------------------------------------------------------


def _verify_ledgers(inputs: VerificationInputs) -> Iterator[Problem]:
    facts = inputs.journal_facts
    for agent in facts.turns.keys() - facts.under_way:
        yield from _verify_ledger(inputs.base, facts, agent)


def _verify_ledger(base: OrgPath, facts: JournalFacts, agent: str) -> Iterator[Problem]:
    file, turns = paths.ledger_file(agent), facts.turns[agent]
    last = max(turns)
    try:
        raw = fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        is_error = (base / paths.agent_folder(agent)).is_dir()
        yield make_mismatch(last, file, "missing", f"does not exist; {agent} has had turns", is_error=is_error)
        return
    except OSError as error:
        yield make_mismatch(last, file, "damage", unreadable_reason(error))
        return
    if len(raw) > FILE_LIMIT_BYTES:
        message = f"is larger than the limit of {FILE_LIMIT_BYTES >> 20} MiB for a ledger"
        yield make_mismatch(last, file, "damage", message)
        return
    *complete_lines, surplus = raw.split(b"\n")
    lines: dict[int, Json] = {}
    for number, line in enumerate(complete_lines, 1):
        try:
            fields = parse(line, limit_bytes=LINE_LIMIT_BYTES)
            lines[fields["tick"]] = fields
        except (JsonProblem, KeyError, TypeError) as error:
            previous_tick = max(lines, default=min(turns))
            message = f"line {number}, after tick {previous_tick}, must be a turn: {error}"
            yield make_mismatch(previous_tick, file, "damage", message)
    yield from _compare_ledger(base, facts, agent, lines)
    if surplus and last in lines:
        yield make_mismatch(last, file, "damage", f"{len(surplus)} bytes at its end are not a whole line")


def _compare_ledger(base: OrgPath, facts: JournalFacts, agent: str, lines: dict[int, Json]) -> Iterator[Problem]:
    file, turns = paths.ledger_file(agent), facts.turns[agent]
    oldest = min(lines, default=min(turns))
    for tick, expected in turns.items():
        if tick < oldest:  # a ledger keeps its newest lines
            continue
        line = lines.get(tick)
        if line is None:
            yield make_mismatch(tick, file, "missing", f"has no line for tick {tick}, in which there was a turn")
            continue
        if not _matches(line, expected):
            key = next(key for key, value in expected.items() if line.get(key) != value)
            message = f"{key} must be {expected[key]!r} after tick {tick} by the journals, got {line.get(key)!r}"
            yield make_mismatch(tick, file, "edited", message)
    for tick in ((lines.keys() - turns.keys()) & {*facts.ticks}).difference(facts.damaged):
        # An agent without a folder, or with a new one, may have been renamed, and its ledger with it.
        removed_turns = [turns for name, turns in facts.turns.items() if not (base / paths.agent_folder(name)).is_dir()]
        if not any(_matches(lines[tick], former[tick]) for former in (*removed_turns, *facts.former) if tick in former):
            yield make_mismatch(tick, file, "unaccounted", f"has a line for tick {tick}, which has no turn")


def _matches(line: Json, expected: Json) -> bool:
    return all(line.get(key) == value for key, value in expected.items())


def _verify_merges(inputs: VerificationInputs) -> Iterator[Problem]:
    """Yield the merges of workers that their repositories do not have."""
    if find_problems := find_fact("workers.merge_problems"):
        yield from find_problems(Organisation.from_path(inputs.base), inputs.journal_facts.ticks)


_check = partial(Check, cost="journals", scope="journals")
CHECKS = (
    _check(
        "journals", description="integrity and order of the journals", find=lambda inputs: inputs.journal_facts.findings
    ),
    _check("written", description="each file against the last turn that wrote it", find=_verify_files),
    _check("outboxes", description="entries not written by a turn", find=_verify_outboxes),
    _check("ledgers", description="each ledger line against its turn", find=_verify_ledgers),
    _check("clock", description="tick.json against the last journal", find=_verify_tick_counter),
    _check("merges", description="recorded merges of workers against their repositories", find=_verify_merges),
)
"""The selection of `lemming verify`."""
