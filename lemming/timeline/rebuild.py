"""A history made from the journals: a commit for each tick that they tell of, as if it had been on.

What is in each is what `lemming.timeline.past` finds. Each commit has the trailer `Rebuilt`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice

from lemming.history.git import BRANCH, Repository
from lemming.history.recorder import BY_HAND, ENGINE, message_of, tick_message
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.past import PastFiles

_TICKS_AT_ONCE = 100


def rebuild(base: OrgPath, repository: Repository) -> int:
    """Fill an empty history with a commit for each tick that the journals tell of; return how many.

    For the holder of the organisation's lock. Ticks whose journals cannot be read are left out. After one
    that was cut off the history goes on from where it got. Raises `GitFailed`.
    """
    try:
        past = PastFiles(base)
    except UsageError:
        return 0
    if not past.ticks:
        return 0
    commits = _commits(past)
    while at_once := b"".join(islice(commits, _TICKS_AT_ONCE)):
        repository.run("fast-import", "--quiet", "--date-format=raw", feed=at_once)
    repository.run("read-tree", BRANCH)
    return len(past.ticks)


def _commits(past: PastFiles) -> Iterator[bytes]:
    """Yield the commits as `git fast-import` takes them."""
    for number, (tick, changed) in enumerate(past.steps.items()):
        files = {
            place: version and past.content_of(place, version) for place, version in sorted(changed.items())
        }
        own = past.own_files(tick)
        if tick == past.before_all:
            subject, trailers = f"before tick {tick + 1}: the history begins", {"Before-Tick": tick + 1}
            message, author = message_of(subject, {**trailers, "Rebuilt": "yes"}), BY_HAND
            at = past.told.ticks[past.first].at
        else:
            told = past.told.ticks[tick]
            message, author, at = tick_message(tick, told.reports, Rebuilt="yes"), ENGINE, told.at
            turned = [paths.ledger_file(report.agent) for report in told.reports]
            own = {file: own[file] for file in (*turned, paths.TICK_FILE) if file in own}
        parent = f"{BRANCH}^0" if number and number % _TICKS_AT_ONCE == 0 else ""  # git has forgotten it
        yield _commit(message, author, _seconds(at), files | own, parent)


def _commit(
    message: str, author: str, at_s: int, files: Mapping[str, bytes | None], parent: str = ""
) -> bytes:
    who = f"{author} <lemming@localhost> {at_s} +0000"
    parts = [
        f"commit {BRANCH}\nauthor {who}\ncommitter LeMMing <lemming@localhost> {at_s} +0000\n".encode(),
        _data(message.encode()),
    ]
    parts += [f"from {parent}\n".encode()] if parent else []
    for file, content in sorted(files.items()):
        if content is None:
            parts.append(b"D %b\n" % _quoted(file))
        else:
            parts += [b"M 100644 inline %b\n" % _quoted(file), _data(content)]
    return b"".join([*parts, b"\n"])


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quoted(file: str) -> bytes:
    """Return a path in the quotes of C, as git takes any name."""
    raw = os.fsencode(file).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % raw


def _seconds(at: str) -> int:
    try:
        return max(0, int(parse_timestamp(at).timestamp()))
    except ValueError:
        return 0
