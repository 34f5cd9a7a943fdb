"""Keeps secrets out of every file, every error text and the screen.

A secret is the value of an environment variable that the organisation names (`name_variables`), whose name
says so, or that looks like a key or holds a password in an address: as it is, without the space around it,
and as JSON, URLs, base64 and hex write it. What comes from outside, once, on its way in (`redact_foreign`),
also loses what looks like a key to anybody, and what hides behind escapes. Promises: docs/security.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from lemming.kernel.base.redaction.disguises import is_dressed, is_in_short_lines, texts_in
from lemming.kernel.base.redaction.key_shapes import has_long_word, keys_in, may_hide
from lemming.kernel.base.redaction.rewriting import with_texts

_SECRET_NAME = re.compile(
    r"(?<!PUBLIC_)KEY(?!BOARD|MAP)|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(?:\A|_)(?:PAT|PASS|AUTH|AUTHORIZATION|COOKIE)\Z",
    re.I,
)
LONGEST_LOOKED_AT = 1 << 20
"""So many bytes of a file are looked at for what looks like a key, and for disguises."""

_SHORTEST = 8  # anything shorter is found inside ordinary words
_SHORTEST_NAMED = 6  # of a variable that is said to hold a key
_SHORTEST_LONE_USER = 16  # an address's user without a password is a token when it is this long
_SHORTEST_BASE64 = 8

# What programs are commonly given, and is no secret though an organisation names it.
_ordinary = cache(
    lambda: re.compile(
        r"(?:PATH|HOME|PWD|OLDPWD|LANG|LANGUAGE|LC_\w+|USER|LOGNAME|SHELL|TERM|COLORTERM|TMPDIR|TEMP|TMP|TZ|EDITOR"
        r"|VISUAL|PAGER|DISPLAY|HOSTNAME|XDG_\w+|SSH_AUTH_SOCK|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|VIRTUAL_ENV"
        r"|\w*PATH|\w+_DIR|\w+_HOME)\Z"
    )
)
_USERINFO = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?P<userinfo>[^\s/?#]+)@", re.I)
_ASSIGNED = re.compile(r"(?<![\w-])([\w-]++)=([^&;#\s]+)")  # from a name's start only: else it is quadratic
_DEPTH = 2  # a disguise in a disguise is looked through
_SHORTEST_HALF = 6
_LOOKS_LIKE_KEY = "key"
_MARK = re.compile(r"\[redacted [^\]\s]{1,200}\]")
_shapes = cache(
    lambda: re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
        r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
        r"|\b(?:sk|pk|rk)-[\w-]{8,}"
        r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_)[\w-]{8,}"
        r"|\b(?-i:AKIA|ASIA)(?-i:[A-Z0-9]{12,})"
        r"|\b(?-i:AIza)[\w-]{20,}"
        r"|(?<=\bBearer )[^\s\"',]{8,}"
        r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",  # user:password in an address
        re.I | re.S,
    )
)


class Secret(NamedTuple):
    """A text that no file may hold: as it is, in one case, as bytes, and the variable it comes from."""

    value: str
    folded: str
    raw: bytes
    name: str


# Of the process, not of an organisation: the environment is, and a secret that one organisation names is kept
# out of the files of all of them.
_known: tuple[Secret, ...] | None = None
_named: dict[str, bool] = {}  # the variables that organisations name; whether that is as a key's
_written: dict[str, str] = {}  # passwords that stand in an organisation's own settings, and where


def name_variables(options: Mapping[str, Any], where: str) -> None:
    """Take note of the variables that a provider's options name: their values are secrets from now on.

    A variable is whatever text in the options, at any depth, is the name of one. One under a key that ends in
    `_env` is a key's, whose value may be short. Passwords in addresses among the options are secrets too.
    """
    global _known
    present = set(os.environ)
    for key, text in _texts(options):
        if "://" in text or key == "host":
            for form in _parts_of_address(text):
                if form not in _written:
                    _written[form], _known = where, None
        is_key = key.endswith("_env")
        is_named = is_key or ((key == "env" or text in present) and not _ordinary().match(text))
        if is_named and not (text in _named and _named[text] >= is_key):
            _named[text], _known = is_key, None


def redact_values(text: str) -> str:
    """Return the text without secret values; quick when there are none in it.

    The environment is read once; `refresh` reads it again.
    """
    for secret in _known if _known is not None else refresh():
        if secret.value in text:
            text = text.replace(secret.value, f"[redacted {secret.name}]")
    return text


def redact_foreign(text: str) -> str:
    """Return a text from outside without secret values, in disguise or not, and without keys by their looks.

    >>> redact_foreign("it is ghp_0123456789abcdefghij0123456789abcdef")
    'it is [redacted key]'
    """
    spans = [*_secrets_in(text, _DEPTH)]
    if not spans:
        return text
    spans.sort(key=lambda span: (span[0], -span[1]))
    pieces: list[str] = []
    end = 0
    for start, after, name in spans:
        if start >= end:
            pieces += text[end:start], f"[redacted {name}]"
        end = max(end, after)
    return "".join([*pieces, text[end:]])


def unfinished(text: str) -> tuple[int, str]:
    """Return how many characters at a text's end may be the beginning of a secret, and the secret's name."""
    for secret in _known if _known is not None else refresh():
        for length in range(min(len(secret.value) - 1, len(text)), _SHORTEST_HALF - 1, -1):
            if text.endswith(secret.value[:length]):
                return length, secret.name
    return 0, ""


def redact_half(text: str) -> str:
    """Return a text that was cut off from outside without the half of a secret at its end."""
    text = redact_foreign(text)
    length, name = unfinished(text)
    return f"{text[:-length]}[redacted {name}]" if length else text


def holds_mark(value: Any) -> bool:
    """Return whether a secret was taken out of a JSON value.

    >>> holds_mark({"command": "echo [redacted API_KEY]"}), holds_mark(["it was [redacted]"])
    (True, False)
    """
    if isinstance(value, str):
        return _MARK.search(value) is not None
    if isinstance(value, dict):
        return any(holds_mark(key) or holds_mark(item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(map(holds_mark, value))


def redact_bytes(text: bytes) -> bytes:
    """Do what `redact_values` does for a text that is UTF-8 already.

    >>> redact_bytes(b'{"event": "turn"}')
    b'{"event": "turn"}'
    """
    for secret in _known if _known is not None else refresh():
        if text.find(secret.raw) >= 0:  # `in` first tries whether it is a number, at six times the price
            text = text.replace(secret.raw, f"[redacted {secret.name}]".encode("utf-8", "replace"))
    return text


def redact_content(content: bytes) -> bytes:
    """Return a file's content without secrets; in one that is no text, stars stand in their place.

    Beyond `LONGEST_LOOKED_AT` bytes only values are found, as they are.

    >>> redact_content(b"plain"), redact_content(bytes([0, 255]))
    (b'plain', b'\\x00\\xff')
    """
    if len(content) <= LONGEST_LOOKED_AT:
        with contextlib.suppress(UnicodeDecodeError):
            return redact_foreign(content.decode()).encode()
    for secret in _known if _known is not None else refresh():
        content = content.replace(secret.raw, b"*" * len(secret.raw))  # of the same length: it stays readable
    for start, end in keys_in(content[:LONGEST_LOOKED_AT].decode("latin-1")):
        content = content[:start] + b"*" * (end - start) + content[end:]
    return content


def redact_json(value: Any) -> Any:
    """Return a JSON value from outside without secrets in its texts and keys; its numbers stay as they are.

    >>> redact_json({"ticks": [1, 2]})
    {'ticks': [1, 2]}
    """
    return with_texts(value, redact_foreign)


def redact(text: str) -> str:
    """Return an error's text without secret values, as the environment is now, and without known key shapes.

    >>> redact("401: bad key sk-proj-0123456789abcdef")
    '401: bad key [redacted]'
    """
    refresh()
    return redact_foreign(_shapes().sub("[redacted]", redact_values(text)))


def excerpt(text: str, limit_chars: int = 200) -> str:
    """Return foreign text on one line, redacted, and cut: the part of it that an error may quote.

    >>> excerpt("<html>\\n  <body>Bad gateway", 14)
    '<html> <body>…'
    """
    line = " ".join(redact(redact_values(text)[: 64 * limit_chars]).split())  # no secret is cut in two
    return line if len(line) <= limit_chars else line[: limit_chars - 1].rstrip() + "…"


def is_secret_name(name: str) -> bool:
    """Return whether a name says that what it stands for is a secret.

    >>> is_secret_name("GITHUB_TOKEN"), is_secret_name("Authorization"), is_secret_name("LOG_LEVEL")
    (True, True, False)
    """
    return bool(_SECRET_NAME.search(name))


def holds_secret(text: str) -> bool:
    """Return whether a text holds what looks like a key to anybody.

    >>> holds_secret("--token=ghp_0123456789abcdef"), holds_secret("--read-only")
    (True, False)
    """
    return (
        bool(_shapes().search(text))
        or any(keys_in(text))
        or any(
            _SECRET_NAME.search(name) and len(value) >= _SHORTEST_NAMED
            for name, value in _ASSIGNED.findall(text)
        )
    )


def without_userinfo(address: str) -> str:
    """Return an address as it may be shown: without user and password.

    >>> without_userinfo("https://me:secret@example.org/v1"), without_userinfo("me:secret@box:11434")
    ('https://example.org/v1', 'box:11434')
    """
    scheme, mark, rest = address.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def refresh() -> tuple[Secret, ...]:
    """Read the environment again; return the secrets in it, longest first."""
    global _known
    found = {form: name for value, name in _secret_values() for form in _forms(value)}
    longest_first = sorted(found.items(), key=lambda item: (-len(item[0]), item))
    _known = tuple(
        Secret(value, _folded(value), value.encode("utf-8", "surrogateescape"), name)
        for value, name in longest_first
    )
    return _known


def _secrets_in(text: str, depth: int, *, is_bytes: bool = False) -> Iterator[tuple[int, int, str]]:
    """Yield where secrets stand in a text, and their names; it looks through so many disguises."""
    folded = _folded(text)
    for secret in _known if _known is not None else refresh():
        start = folded.find(secret.folded)
        while start >= 0:
            yield start, start + len(secret.value), secret.name
            start = folded.find(secret.folded, start + 1)  # they may overlap
    may_be_hidden = may_hide(text)
    if may_be_hidden:
        for start, end in keys_in(text):
            yield start, end, _LOOKS_LIKE_KEY
    if depth and _may_be_in_disguise(text, may_be_hidden=may_be_hidden, is_bytes=is_bytes):
        for inner, place, of_bytes in texts_in(text, is_bytes=is_bytes):
            for start, end, name in _secrets_in(inner, depth - 1, is_bytes=of_bytes):
                yield *place(start, end), name


def _folded(text: str) -> str:
    """Return a text in one case and as long as it was: only this letter becomes two."""
    return text.replace("\u0130", "i").lower()


def _may_be_in_disguise(text: str, *, may_be_hidden: bool, is_bytes: bool) -> bool:
    if may_be_hidden and ("\\" in text or "%" in text or "&#" in text or has_long_word(text)):
        return True
    return not is_bytes and ((may_be_hidden and "=" in text) or is_in_short_lines(text) or is_dressed(text))


def _secret_values() -> Iterator[tuple[str, str]]:
    """Yield the values that are secrets, each with the name it is replaced by."""
    yield from _written.items()
    for name, value in os.environ.items():
        trimmed = value.strip()
        if _is_secret(name, trimmed):
            yield from ((value, name), (trimmed, name))
        if "@" in trimmed or "=" in trimmed:
            yield from ((part, name) for part in _parts_of_address(trimmed))


def _is_secret(name: str, value: str) -> bool:
    if _named.get(name):
        return len(value) >= _SHORTEST_NAMED
    if len(value) < _SHORTEST or value.isdigit():
        return False
    return name in _named or bool(_SECRET_NAME.search(name)) or bool(_shapes().fullmatch(value))


def _parts_of_address(text: str) -> Iterator[str]:
    """Yield what is secret in an address, with a scheme or none: user and password, what is named a key."""
    for name, value in _ASSIGNED.findall(text):
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_NAMED:
            yield from {value, unquote(value)}
    match = _USERINFO.match(text)
    userinfo = match["userinfo"] if match else ""
    user, colon, password = userinfo.partition(":")
    if colon and password:
        yield f"{userinfo}@"  # with its sign, also a short one is found
        for form in {userinfo, unquote(userinfo), password, unquote(password)}:
            if len(form) >= _SHORTEST_NAMED:
                yield form
    elif len(user) >= _SHORTEST_LONE_USER:
        yield user


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it is, and as JSON, an address, base64 and hex hold it."""
    from base64 import b64encode, urlsafe_b64encode  # not wanted where there are no secrets

    yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield json.dumps(json.dumps(value))[3:-3]  # JSON in JSON
    raw = value.encode("utf-8", "surrogateescape")
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    yield from (raw.hex(), raw.hex().upper(), raw.decode("latin-1"))  # the last as `texts_in` reads bytes
    for before in range(3):  # base64 looks different after each number of bytes, modulo 3
        for encode in (b64encode, urlsafe_b64encode):
            # The first and the last characters depend on what stands around the value.
            middle = encode(bytes(before) + raw).decode().rstrip("=")[(0, 2, 3)[before] :]
            middle = middle[: len(middle) - 1] if (before + len(raw)) % 3 else middle
            if len(middle) >= _SHORTEST_BASE64:
                yield middle


def _texts(options: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a provider's options, with the key it stands under."""
    if isinstance(options, str):
        yield key, options
    elif isinstance(options, Mapping):
        for inner_key, value in options.items():
            yield from _texts(value, str(inner_key))
            yield from ((key, name) for name in (inner_key,) if key == "env" and isinstance(name, str))
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from _texts(value, key)
