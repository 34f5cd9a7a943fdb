"""The read model: a SQLite file of the facts in journals, rebuilt as far as the journals have changed.

`.lemming/read-model/` holds the file and a stamp: the file's identity, signed with a key outside the folder.
An edited, forged, copied or torn file, or one of another version, is removed and built anew. A journal is read
again when its identity has changed, unless its bytes still have the digest of its rows.
Where the file cannot be written, the same rows are built in memory.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError, OrgBusy, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.folder_lock import lock_folder
from lemming.kernel.files.stat_cache import file_identity, has_stable_mtime, path_exists
from lemming.kernel.journal.journal_file import raw_journal
from lemming.kernel.journal.journal_segments import SEALED_FOLDER, TICKS_PER_SEGMENT, plain_ticks, segments
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.concurrency.process_chunks import map_chunks
from lemming.libraries.output_files import get_state_folder
from lemming.read_model.build_options import BuildOptions
from lemming.read_model.tick_rows import SCHEMA, TickRows, fold_tick_rows, insert_tick, remove_source

try:
    import sqlite3
except ImportError as error:  # an optional module of Python
    hint = "install a Python with it; built from source, it needs the headers of SQLite (libsqlite3-dev)"
    raise UsageError("this Python has no sqlite3, which costs, `why` and the page need", hint=hint) from error

FOLDER = ".lemming/read-model"
MODEL_FILE, STAMP_FILE = f"{FOLDER}/model.sqlite", f"{FOLDER}/stamp.json"
KEY_FILE = "read-model.key"
VERSION = blake2b(SCHEMA.encode(), digest_size=8).hexdigest() + "-3"
"""Version of the rows; a file of another version is built anew. The number counts changes of the fold."""

MIN_BYTES_FOR_FILE = 2 << 20
"""Bytes of journals up to which no file is made: reading takes a tenth of a second."""
MIN_TICKS_FOR_PROCESSES, SOURCES_PER_CHUNK = 1000, 4
"""Number of ticks to read from which several processes pay; files with journals that a process reads at once."""
MAX_WAITS = 5
"""Waits of five seconds for the lock, after which the rows are built in memory."""


class _Source(NamedTuple):
    """A file with journals: path in the folder, identity, ticks to read, and size in bytes.

    `files`: the path, and that of the same segment in another format.
    """

    path: str
    identity: str
    ticks: tuple[int, ...]
    size: int
    files: tuple[str, ...]


class ReadModel:
    """The read model of an organisation: `org.get_cache(ReadModel)`. Threads and processes may share one."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._options, self._lock = org, org.get_cache(BuildOptions), threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, ...] = ()
        self._in_memory = False
        self._block = threading.local()

    def close(self) -> None:
        """Close the file. It is opened again on demand."""
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection, self._identity = None, ()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Show this thread a single state of the journals during a block."""
        is_outer = not hasattr(self._block, "is_fresh")
        if is_outer:
            self._block.is_fresh = False
        try:
            yield
        finally:
            if is_outer:
                del self._block.is_fresh

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        """Return the rows of a query, after reading changed journals. Raises: CorruptState for an unreadable folder."""
        with self._lock:
            for is_last in (False, True):
                try:
                    return self._refresh().execute(sql, parameters).fetchall()
                except sqlite3.Error:  # damaged under its stamp, a full disk
                    self._discard()
                    self._in_memory = self._in_memory or is_last
            return self._refresh().execute(sql, parameters).fetchall()

    def load_outboxes(self) -> Mapping[str, tuple[str, list[str]]]:
        """Return each author's outbox stamp and the names of its files about requests; empty without a file."""
        with self._lock, contextlib.suppress(sqlite3.Error, OSError, DiskError, OrgBusy):
            if not self._in_memory and path_exists(f"{self._org.base}/{MODEL_FILE}"):
                with self._locked():
                    rows = self._open_file().execute("SELECT author, stamp, files FROM outbox").fetchall()
                return {author: (stamp, files.split("/") if files else []) for author, stamp, files in rows}
        return {}

    def save_outboxes(self, outboxes: Mapping[str, tuple[str, Sequence[str]]]) -> None:
        """Replace the stamps and names of all outboxes. Errors of the disk are ignored."""
        rows = [(author, stamp, "/".join(files)) for author, (stamp, files) in outboxes.items()]
        with self._lock, contextlib.suppress(sqlite3.Error, OSError, DiskError, OrgBusy):
            if not self._in_memory:
                with self._locked(), self._open_file() as connection:
                    self._remove_stamp()
                    connection.execute("DELETE FROM outbox")
                    connection.executemany("INSERT INTO outbox VALUES (?, ?, ?)", rows)
                    connection.commit()
                    self._save_stamp()

    # --- the file -------------------------------------------------------------------------------

    def _refresh(self) -> sqlite3.Connection:
        """Return the connection, with the rows of all journals as they are now, or were in the block's first query."""
        if self._connection and getattr(self._block, "is_fresh", False):
            return self._connection
        connection = self._refresh_rows()
        if hasattr(self._block, "is_fresh"):
            self._block.is_fresh = True
        return connection

    def _refresh_rows(self) -> sqlite3.Connection:
        sources = {source.path: source for source in self._list_sources()}
        if not self._in_memory and self._needs_file(sources.values()):
            try:
                with self._locked():
                    connection = self._open_file()
                    if self._apply_changes(connection, sources):
                        self._save_stamp()
                    return connection
            except (OSError, DiskError):  # a folder that may not be written
                self._discard()
                self._in_memory = True
            except OrgBusy:
                self.close()
                self._in_memory = True
        if self._connection is None:
            self._connection = _connect(":memory:")
        self._apply_changes(self._connection, sources)
        return self._connection

    def _needs_file(self, sources: Iterable[_Source]) -> bool:
        """Return True for more journals than are read in an instant."""
        if self._identity or path_exists(f"{self._org.base}/{MODEL_FILE}"):
            return True
        if sum(source.size for source in sources) < MIN_BYTES_FOR_FILE:
            return False
        self.close()  # what is in memory
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the model's folder; another process may be building for a while.

        Raises: OrgBusy after half a minute, as that process may be stopped, or hold the lock for no reason.
        """
        with self._options.show_progress() as progress, contextlib.ExitStack() as stack:
            for tries in range(MAX_WAITS + 1):
                try:
                    stack.enter_context(lock_folder(self._org.base, FOLDER))
                    break
                except OrgBusy:
                    progress("another process reads the journals", tries, MAX_WAITS)
                    if tries == MAX_WAITS:
                        raise
            yield

    def _open_file(self) -> sqlite3.Connection:
        """Return the connection to the file, a new one if the file is not as this user left it."""
        base, stamp = self._org.base, self._load_stamp()
        if stamp is None:
            self._discard()
            fs.write_atomic(base, MODEL_FILE, b"")
            fs.remove(base, STAMP_FILE)
        elif self._identity != tuple(stamp[:1]):  # another process has built it anew
            self.close()
        if self._connection is None:
            self._connection = _connect(f"file:{base / MODEL_FILE}?mode=rw")
            self._identity = file_identity(f"{base}/{MODEL_FILE}")[:1]
        if stamp is None:
            self._save_stamp()
        return self._connection

    def _load_stamp(self) -> Sequence[int] | None:
        """Return the identity of the file if this user wrote it last, else None."""
        base = self._org.base
        try:
            stamp = parse(fs.read_bytes(base / STAMP_FILE, 4096))
            identity = file_identity(f"{base}/{MODEL_FILE}")
            is_signed = hmac.compare_digest(str(stamp["signature"]), _sign(identity))
            has_leftovers = any(os.path.lexists(f"{base}/{MODEL_FILE}{end}") for end in ("-journal", "-wal", "-shm"))
        except (OSError, JsonProblem, KeyError, TypeError):
            return None
        return identity if is_signed and not has_leftovers else None

    def _remove_stamp(self) -> None:
        """Remove the stamp before a write. A kill may leave a torn file with the same times, so the same identity."""
        if self._identity:
            fs.remove(self._org.base, STAMP_FILE)

    def _save_stamp(self) -> None:
        signature = _sign(file_identity(f"{self._org.base}/{MODEL_FILE}"))
        fs.write_atomic(self._org.base, STAMP_FILE, dump_compact({"signature": signature}))

    def _discard(self) -> None:
        """Forget the file, which is built anew at the next look."""
        self.close()
        with contextlib.suppress(OSError, DiskError):
            for path in (STAMP_FILE, MODEL_FILE, *(f"{MODEL_FILE}{end}" for end in ("-journal", "-wal", "-shm"))):
                if os.path.lexists(f"{self._org.base}/{path}"):
                    fs.remove(self._org.base, path)

    # --- the rows -------------------------------------------------------------------------------

    def _apply_changes(self, connection: sqlite3.Connection, sources: Mapping[str, _Source]) -> bool:
        """Read new and changed journals, and drop the rows of removed files. Returns True after any change."""
        started_ns = time.time_ns()
        known_identities = dict(connection.execute("SELECT path, identity FROM source"))
        missing = [path for path in known_identities if path not in sources]
        changed = [source for path, source in sources.items() if known_identities.get(path) != source.identity]
        if not missing and not changed:
            return False
        self._remove_stamp()
        with connection:
            for path in missing:
                remove_source(connection, path)
            for source, digest, rows in self._read_sources(connection, changed):
                # An edit in the same granule of the clock would not show: such a file is read again.
                identity = source.identity if self._is_settled(source, started_ns) else ""
                if rows is not None:
                    remove_source(connection, source.path)
                    for row in rows:
                        insert_tick(connection, source.path, row)
                connection.execute("REPLACE INTO source VALUES (?, ?, ?)", (source.path, identity, digest))
        return True

    def _read_sources(
        self, connection: sqlite3.Connection, changed: list[_Source]
    ) -> Iterator[tuple[_Source, str, list[TickRows] | None]]:
        """Yield each changed source with its digest and rows, or None for unchanged rows."""
        digests, options = dict(connection.execute("SELECT path, digest FROM source")), self._options
        pairs = [(source, digests.get(source.path, "")) for source in changed]
        is_large = options.uses_all_cores and sum(len(source.ticks) for source in changed) >= MIN_TICKS_FOR_PROCESSES
        read = partial(_read_sources, self._org.base if is_large else self._org)
        with options.show_progress() as progress:
            results = map_chunks(read, pairs, in_processes=is_large, size=SOURCES_PER_CHUNK)
            for done, (source, result) in enumerate(zip(changed, results, strict=True), 1):
                progress("journals", done, len(changed))
                yield source, *result

    def _list_sources(self) -> Iterator[_Source]:
        """Yield the files with journals. A tick with a plain file is not read from its segment."""
        plain, files_by_tick = frozenset(plain_ticks(self._org)), dict[int, list[str]]()
        for segment in sorted(segments(self._org)):
            # Nothing is read from a segment of another name. A power cut leaves two of one span, in two formats.
            if segment.first % TICKS_PER_SEGMENT == 0 and segment.last - segment.first + 1 == TICKS_PER_SEGMENT:
                files_by_tick.setdefault(segment.first, []).append(f"{SEALED_FOLDER}/{segment.name}")
        for first, files in files_by_tick.items():
            span = range(first, first + TICKS_PER_SEGMENT)
            left_out = " ".join(str(tick) for tick in span if tick in plain)
            yield from self._find_source(files, tuple(tick for tick in span if tick not in plain), left_out)
        for tick in plain:
            yield from self._find_source([paths.journal_file(tick)], (tick,))

    def _find_source(self, files: list[str], ticks: tuple[int, ...], left_out: str = "") -> Iterator[_Source]:
        with contextlib.suppress(FileNotFoundError):
            identities = [file_identity(f"{self._org.base}/{file}") for file in files]
            text = " ".join((*(".".join(map(str, identity)) for identity in identities), left_out))
            yield _Source(files[0], text, ticks, sum(identity[1] for identity in identities), tuple(files))

    def _is_settled(self, source: _Source, started_ns: int) -> bool:
        with contextlib.suppress(OSError):
            identities = [file_identity(f"{self._org.base}/{file}") for file in source.files]
            return all(has_stable_mtime(identity, started_ns) for identity in identities)
        return False


def _connect(address: str) -> sqlite3.Connection:
    """Open a file, or memory, without a log beside the file: a kill leaves a wrong stamp."""
    connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    connection.executescript("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF; PRAGMA cache_size=-16000;")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'source'").fetchone():
        connection.executescript(SCHEMA)
    return connection


def _sign(identity: Sequence[int]) -> str:
    """Return the signature of a file's identity. Raises: DiskError or OSError without a folder for the key."""
    return blake2b(repr((VERSION, *identity)).encode(), key=_load_key(), digest_size=16).hexdigest()


def _load_key() -> bytes:
    """Return this user's key, created on first use: an agent with access to the folder cannot sign a file."""
    folder = get_state_folder()
    with contextlib.suppress(FileNotFoundError):
        if len(key := fs.read_bytes(folder / KEY_FILE, 64)) == 32:
            return key
    fs.make_root(folder)
    fs.write_private(folder, KEY_FILE, secrets.token_bytes(32))
    return fs.read_bytes(folder / KEY_FILE, 64)


def _read_sources(base: OrgPath, sources: Sequence[tuple[_Source, str]]) -> Iterator[tuple[str, list[TickRows] | None]]:
    """Yield the digest of each file with journals and the rows of its ticks, or None for the known digest."""
    org = Organisation.from_path(base)
    for source, known_digest in sources:
        digest = _digest_source(org, source)
        is_known = digest and digest == known_digest
        yield digest, None if is_known else [*_fold_source(org, source)]


def _fold_source(org: Organisation, source: _Source) -> Iterator[TickRows]:
    for tick in source.ticks:
        try:
            raw = raw_journal(org, tick)
            if raw or not source.path.startswith(SEALED_FOLDER):
                yield fold_tick_rows(tick, raw)
        except CorruptState as error:
            yield TickRows.of_damage(tick, str(error))


def _digest_source(org: Organisation, source: _Source) -> str:
    """Return the digest of a file's bytes and of the ticks read from it, or empty for an unreadable file."""
    digest = blake2b(repr(source.ticks).encode(), digest_size=16)
    try:
        for path in source.files:
            with open_regular(f"{org}/{path}") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()
