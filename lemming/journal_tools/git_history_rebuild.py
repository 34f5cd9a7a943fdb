"""Rebuilds a git history from the journals: a commit for each recorded tick.

The content of each commit comes from `lemming.journal_tools.file_history`. Each commit has the trailer `Rebuilt`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice

from lemming.git_history.git_repository import BRANCH, Repository
from lemming.git_history.recorder import BY_HAND, ENGINE, format_message, format_tick_message
from lemming.journal_tools.file_history import FileHistory
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath

_TICKS_PER_BATCH = 100


def rebuild_history(base: OrgPath, repository: Repository) -> int:
    """Fill an empty git history with a commit for each recorded tick, and return the number of ticks.

    The caller must hold the organisation's lock. Unreadable journals are skipped. After an interruption, the
    next call continues where the last call stopped. Raises `GitFailed`.
    """
    try:
        history = FileHistory(base)
    except UsageError:
        return 0
    if not history.ticks:
        return 0
    commits = _iter_fast_import(history)
    while batch := b"".join(islice(commits, _TICKS_PER_BATCH)):
        repository.run("fast-import", "--quiet", "--date-format=raw", stdin=batch)
    repository.run("read-tree", BRANCH)
    return len(history.ticks)


def _iter_fast_import(history: FileHistory) -> Iterator[bytes]:
    """Yield the commits in the format of `git fast-import`."""
    for index, (tick, changed) in enumerate(history.changes_by_tick.items()):
        files = {path: version and history.load_version(path, version) for path, version in sorted(changed.items())}
        engine_files = history.load_engine_files(tick)
        if tick == history.tick_before_first:
            subject, trailers = f"before tick {tick + 1}: the history begins", {"Before-Tick": tick + 1}
            message, author = format_message(subject, {**trailers, "Rebuilt": "yes"}), BY_HAND
            at = history.file_changes.ticks[history.first_tick].at
        else:
            tick_changes = history.file_changes.ticks[tick]
            message, author, at = (
                format_tick_message(tick, tick_changes.reports, Rebuilt="yes"),
                ENGINE,
                tick_changes.at,
            )
            ledger_files = [paths.ledger_file(report.agent) for report in tick_changes.reports]
            engine_files = {
                file: engine_files[file] for file in (*ledger_files, paths.TICK_FILE) if file in engine_files
            }
        parent = f"{BRANCH}^0" if index and index % _TICKS_PER_BATCH == 0 else ""  # git has forgotten it
        yield _format_commit(message, author, _parse_unix_time(at), files | engine_files, parent)


def _format_commit(message: str, author: str, at_s: int, files: Mapping[str, bytes | None], parent: str = "") -> bytes:
    author_line = f"{author} <lemming@localhost> {at_s} +0000"
    parts = [
        f"commit {BRANCH}\nauthor {author_line}\ncommitter LeMMing <lemming@localhost> {at_s} +0000\n".encode(),
        _format_data(message.encode()),
    ]
    parts += [f"from {parent}\n".encode()] if parent else []
    for file, content in sorted(files.items()):
        if content is None:
            parts.append(b"D %b\n" % _quote_path(file))
        else:
            parts += [b"M 100644 inline %b\n" % _quote_path(file), _format_data(content)]
    return b"".join([*parts, b"\n"])


def _format_data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quote_path(file: str) -> bytes:
    """Return a path in C quotes, the form git accepts for any name."""
    raw = os.fsencode(file).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % raw


def _parse_unix_time(at: str) -> int:
    try:
        return max(0, int(parse_timestamp(at).timestamp()))
    except ValueError:
        return 0
