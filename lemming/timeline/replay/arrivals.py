"""What came into an organisation from people, and in which tick it was first there.

A replay starts from what no turn wrote: resumes, settings, shared files, entries of people. Each is put in
its place before the tick in which the journals first show it: an agent's files when a plan first names the
agent, a person's entry when it was written or a prompt first shows it, everything else at the beginning.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lemming.history.outside import outside_files
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.documents import why_unreadable
from lemming.kernel.journal.file import read_journal
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.messages import EntryName, OutboxEntry, names_in, read_entry
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.file_changes import FileChanges, read_file_changes
from lemming.timeline.verify.root import files_that_count

LARGEST_FILE_BYTES = 1 << 30
_TRUST = re.compile(r'^\{"trust": "[a-z][a-z0-9_-]*", ')


@dataclass
class Arrivals:
    """Files by the tick before which they must be in place; None: after the last one.

    `texts` holds those that are on no disk any more.
    """

    files: dict[int | None, list[str]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)

    def deliver(self, source: Path, destination: Path, tick: int | None) -> None:
        """Put what arrives at a tick into its place. Raises `DiskError`."""
        for file in self.files.get(tick, ()):
            fs.publish(destination, file, self.texts[file] if file in self.texts else _read(source, file))


def find_arrivals(
    base: OrgPath, told: FileChanges | None = None, files: Iterable[str] | None = None
) -> Arrivals:
    """Return what arrived when, as all journals tell it; there must be one.

    `told`: what they tell, where it has been read. `files`: those it is asked of, else all that count.
    """
    told = told or read_file_changes(base)
    arrivals = Arrivals()
    agents = survey_agents(base).agents.values()
    counted = files_that_count(base) if files is None else files
    for file in [*counted, *outside_files(base, agents)]:
        if file != paths.TICK_FILE and file not in told.written and not _is_ledger(file):
            arrivals.files.setdefault(_arrival_of(base, told, file), []).append(file)
    for file in sorted(told.expired):
        tick = told.when_seen(_entry_of(file))
        if tick is not None and (text := _quoted(base, tick, file)):
            arrivals.files.setdefault(tick, []).append(file)
            arrivals.texts[file] = text
    return arrivals


def _arrival_of(base: OrgPath, told: FileChanges, file: str) -> int | None:
    """Return the tick before which a file must be there; None when it came after the last."""
    parts = file.split("/")
    if parts[0] != "agents" or len(parts) < 3:
        return min(told.ticks)
    if parts[2] == "outbox" and len(parts) == 4 and paths.ENTRY_FILE.match(parts[3]):
        return _arrival_of_entry(base, told, _entry_of(file))
    return told.named.get(parts[1])


def _arrival_of_entry(base: OrgPath, told: FileChanges, name: EntryName) -> int | None:
    """Return when an entry was first there: shown in a prompt, else there by its own account."""
    seen = told.when_seen(name)
    if seen is not None and not name.is_derived:  # put there by hand: what it says of itself is free
        return seen
    written = ""
    with contextlib.suppress(ConfigError, FileNotFoundError):
        written = read_entry(base, name).created_at
    ticks = told.ticks.items()
    claimed = next((t for t, tick in ticks if t >= name.tick and not _is_later(written, tick.at)), None)
    return min((tick for tick in (seen, claimed) if tick is not None), default=None)


def _quoted(base: OrgPath, tick: int, file: str) -> bytes:
    """Return an entry that retention has removed, as the prompt that first showed it quotes it; or nothing.

    When it was written is not in the prompt, and does not matter: retention removes it again.
    """
    name = _entry_of(file)
    begins = f'{{"id": "{name.id}", "from": "{name.author}", "tick": {name.tick}, '
    for record in read_journal(base, tick):
        if not isinstance(record, TurnStarted) or name.id not in record.entries:
            continue
        for line in "\n".join(message["content"] for message in record.prompt).splitlines():
            line = _TRUST.sub("{", line)
            if not line.startswith(begins):
                continue
            with contextlib.suppress(JsonProblem):
                told = parse(line)
                entry = OutboxEntry(
                    name.id, name.tick, name.author, told["kind"], told["payload"], told.get("tags", [])
                )
                return entry.content
    return b""


def _entry_of(file: str) -> EntryName:
    """Return what the path of an entry says about it."""
    _, author, _, name = file.split("/")
    return names_in(author, [name])[0]


def _is_ledger(file: str) -> bool:
    parts = PurePosixPath(file).parts
    return parts[0] == "agents" and parts[2:] == ("turns.jsonl",)


def _is_later(moment: str, than: str) -> bool:
    """Return whether one timestamp is later than another; one that names no moment is not."""
    try:
        return parse_timestamp(moment) > parse_timestamp(than)
    except ValueError:
        return False


def _read(base: OrgPath, file: str) -> bytes:
    try:
        return fs.read_bytes(base / file, LARGEST_FILE_BYTES)
    except OSError as error:
        raise DiskError(why_unreadable(error), where=file, hint="check its owner and mode") from error
