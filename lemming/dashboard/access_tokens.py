"""Access for the browser: a private file that leads to the page, and the stored token of the previous run.

Every user of the machine can read the arguments of processes, so a token is never in an argument. The browser
opens a file readable by the owner only, and the file redirects to the page.
"""

from __future__ import annotations

import contextlib
import html
import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.libraries.output_files import get_state_folder

_REDIRECT_PAGE = """<!doctype html><meta charset="utf-8"><title>LeMMing</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Open the page</a></p>
"""


class StoredToken(NamedTuple):
    """Token and port with which open tabs reconnect after a restart. Port 0: no port was used yet."""

    token: str
    port: int = 0


def load_token(base: Path) -> StoredToken:
    """Return the stored token of the previous run, or a new token."""
    with contextlib.suppress(OSError, JsonProblem, KeyError, TypeError, ValueError):
        record = parse(fs.read_bytes(get_state_folder() / _make_file_name(base, "json"), 4096))
        token, port = str(record["token"]), int(record["port"])
        if len(token) >= 32:
            return StoredToken(token, port)
    return StoredToken(secrets.token_urlsafe(24))


def store_token(base: Path, stored: StoredToken) -> None:
    """Store a token for the next run in a file readable by the owner only."""
    fs.write_private(get_state_folder(), _make_file_name(base, "json"), dump_compact(stored._asdict()))


@contextlib.contextmanager
def serve_private_page(base: Path, address: str) -> Iterator[str]:
    """Yield the address of a private redirect file, for the length of the block."""
    name = _make_file_name(base, "html")
    fs.write_private(get_state_folder(), name, _REDIRECT_PAGE.format(address=html.escape(address, quote=True)).encode())
    try:
        yield (get_state_folder() / name).as_uri()
    finally:
        fs.remove(get_state_folder(), name)


def _make_file_name(base: Path, ending: str) -> str:
    return f"dash-{sha256(os.fsencode(os.path.realpath(base))).hexdigest()[:16]}.{ending}"
