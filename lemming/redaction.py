"""Keeps secrets out of every file and every error text.

A secret is the value of an environment variable whose name says so. Error texts come from outside, so
in them well-known shapes of keys are taken out too, whether or not the environment holds them.
"""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

_SECRET_NAME = re.compile(r"(?<!PUBLIC_)KEY(?!BOARD|MAP)|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.I)
_SHORTEST = 8  # anything shorter is found inside ordinary words
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|\b(?:sk|pk|rk)-[\w-]{8,}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_)[\w-]{8,}"
    r"|\b(?-i:AKIA|ASIA)(?-i:[A-Z0-9]{12,})"
    r"|\b(?-i:AIza)[\w-]{20,}"
    r"|(?<=\bBearer )[^\s\"',]{8,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)",  # user:password in an address
    re.I | re.S,
)


class Secret(NamedTuple):
    """A text that no file may hold: as a string, as bytes, and the variable it comes from."""

    value: str
    raw: bytes
    name: str


_known: tuple[Secret, ...] | None = None


def redact_values(text: str) -> str:
    """Return the text without the values of secret environment variables; quick when there are none in it.

    The environment is read once; `refresh` reads it again.
    """
    for secret in _known if _known is not None else refresh():
        if secret.value in text:
            text = text.replace(secret.value, f"[redacted {secret.name}]")
    return text


def redact_bytes(text: bytes) -> bytes:
    """Do what `redact_values` does for a text that is UTF-8 already.

    >>> redact_bytes(b'{"event": "turn"}')
    b'{"event": "turn"}'
    """
    for secret in _known if _known is not None else refresh():
        if secret.raw in text:
            text = text.replace(secret.raw, f"[redacted {secret.name}]".encode("utf-8", "replace"))
    return text


def redact(text: str) -> str:
    """Return an error's text without secret values, as the environment is now, and without known key shapes.

    >>> redact("401: bad key sk-proj-0123456789abcdef")
    '401: bad key [redacted]'
    """
    refresh()
    return _SHAPES.sub("[redacted]", redact_values(text))


def excerpt(text: str, limit_chars: int = 200) -> str:
    """Return foreign text on one line, redacted, and cut: the part of it that an error may quote.

    >>> excerpt("<html>\\n  <body>Bad gateway", 14)
    '<html> <body>…'
    """
    line = " ".join(redact(text[: 64 * limit_chars]).split())
    return line if len(line) <= limit_chars else line[: limit_chars - 1].rstrip() + "…"


def refresh() -> tuple[Secret, ...]:
    """Read the environment again; return the secrets in it, longest first."""
    global _known
    found = {
        form: name
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and not value.isdigit() and _SECRET_NAME.search(name)
        for form in _forms(value)
    }
    longest_first = sorted(found.items(), key=lambda item: (-len(item[0]), item))
    _known = tuple(
        Secret(value, value.encode("utf-8", "surrogateescape"), name) for value, name in longest_first
    )
    return _known


def _forms(value: str) -> tuple[str, ...]:
    """A value as it is, and as a JSON string holds it: the journal's lines are JSON."""
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
