"""How the browser is let in: by a private file, and, where that is wanted, with the token of the last time.

Arguments of processes can be read by everybody on the machine, so no address with a token is among them: the
browser is told to open a file that only its owner may read, and that leads to the page.
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

from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.files import fs

_OPENS = """<!doctype html><meta charset="utf-8"><title>LeMMing</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Open the page</a></p>
"""


class KeptToken(NamedTuple):
    """What lets tabs in again after a restart; port 0: none was taken yet."""

    token: str
    port: int = 0


def kept_token(base: Path) -> KeptToken:
    """Return the token of the last time, or a new one."""
    with contextlib.suppress(OSError, JsonProblem, KeyError, TypeError, ValueError):
        plain = parse(fs.read_bytes(_folder() / _name(base, "json"), 4096))
        token, port = str(plain["token"]), int(plain["port"])
        if len(token) >= 32:
            return KeptToken(token, port)
    return KeptToken(secrets.token_urlsafe(24))


def keep(base: Path, kept: KeptToken) -> None:
    """Keep a token for the next time, in a file that only its owner may read."""
    fs.publish_private(_folder(), _name(base, "json"), compact(kept._asdict()))


@contextlib.contextmanager
def private_page(base: Path, address: str) -> Iterator[str]:
    """Give the address of a private file that leads to the page, for the length of the block."""
    name = _name(base, "html")
    fs.publish_private(_folder(), name, _OPENS.format(address=html.escape(address, quote=True)).encode())
    try:
        yield (_folder() / name).as_uri()
    finally:
        fs.remove(_folder(), name)


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "lemming"


def _name(base: Path, ending: str) -> str:
    return f"dash-{sha256(os.fsencode(os.path.realpath(base))).hexdigest()[:16]}.{ending}"
