"""Redaction of secrets from every file, error text and output.

A secret is the value of an environment variable named by the organisation (`register_secret_variables`), with
a secret-like name, or in the form of a key or of an address with a password: literal, trimmed, and encoded
for JSON, URLs, base64 and hex. Foreign text is redacted once, on arrival (`redact_untrusted`), which also
removes anything in a known key format and anything behind escapes. Guarantees: docs/security.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from lemming.kernel.base.redaction.encoded_secrets import find_hidden_texts, has_disguised_letters, has_short_key_lines
from lemming.kernel.base.redaction.key_formats import can_contain_secret, find_key_spans, has_long_word

_SECRET_NAME = re.compile(
    r"(?<!PUBLIC_)KEY(?!BOARD|MAP)|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(?:\A|_)(?:PAT|PASS|AUTH|AUTHORIZATION|COOKIE)\Z",
    re.I,
)
MAX_SCANNED_BYTES = 1 << 20
"""Maximum bytes of a file that are searched for key-like text and encodings."""

_MIN_CHARS = 8  # anything shorter is found inside ordinary words
_MIN_NAMED_CHARS = 6  # of a variable that is said to hold a key
_MIN_LONE_USER_CHARS = 16  # an address's user without a password is a token when it is this long
_MIN_BASE64_CHARS = 8

# Common values of variables, which are no secrets even if an organisation names them.
_ordinary = cache(
    lambda: re.compile(
        r"(?:PATH|HOME|PWD|OLDPWD|LANG|LANGUAGE|LC_\w+|USER|LOGNAME|SHELL|TERM|COLORTERM|TMPDIR|TEMP|TMP|TZ|EDITOR"
        r"|VISUAL|PAGER|DISPLAY|HOSTNAME|XDG_\w+|SSH_AUTH_SOCK|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|VIRTUAL_ENV"
        r"|\w*PATH|\w+_DIR|\w+_HOME)\Z"
    )
)
_USERINFO = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?P<userinfo>[^\s/?#]+)@", re.I)
_ASSIGNED = re.compile(r"(?<![\w-])([\w-]++)=([^&;#\s]+)")  # from the start of a name only, or the search is quadratic
_MAX_NESTED_ENCODINGS = 2  # a disguise in a disguise is looked through
_MIN_PARTIAL_CHARS = 6
_KEY_FORMAT_NAME = "key"
_REDACTION = re.compile(r"\[redacted [^\]\s]{1,200}\]")
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
    """A secret text: the literal value, the lower case, the bytes, and the name of the variable."""

    value: str
    folded: str
    raw: bytes
    name: str


# Of the process, not of an organisation: the environment is, and a secret that one organisation names is kept
# out of the files of all of them.
_secrets: tuple[Secret, ...] | None = None
_named_variables: dict[str, bool] = {}  # variables named by organisations; True for the variable of a key
_config_passwords: dict[str, str] = {}  # passwords that stand in an organisation's own settings, and where


def register_secret_variables(options: Mapping[str, Any], file: str) -> None:
    """Register the variables named in a provider's options; from now on their values are secrets.

    Any text in the options, at any depth, that equals the name of a variable counts. A variable under a key
    ending in `_env` holds a key, whose value may be short. Passwords in addresses among the options are
    secrets too.
    """
    global _secrets
    present = set(os.environ)
    for key, text in _iter_option_texts(options):
        if "://" in text or key == "host":
            for password in _secret_url_parts(text):
                if password not in _config_passwords:
                    _config_passwords[password], _secrets = file, None
        is_key = key.endswith("_env")
        is_named = is_key or ((key == "env" or text in present) and not _ordinary().match(text))
        if is_named and not (text in _named_variables and _named_variables[text] >= is_key):
            _named_variables[text], _secrets = is_key, None


def redact_values(text: str) -> str:
    """Return the text without secret values, fast if it has none. `refresh`: read the environment again."""
    for secret in _secrets if _secrets is not None else refresh():
        if secret.value in text:
            text = text.replace(secret.value, f"[redacted {secret.name}]")
    return text


def redact_untrusted(text: str) -> str:
    """Return a foreign text without secret values, literal or encoded, and without keys in known formats.

    >>> redact_untrusted("it is ghp_0123456789abcdefghij0123456789abcdef")
    'it is [redacted key]'
    """
    spans = [*_find_secrets(text, _MAX_NESTED_ENCODINGS)]
    if not spans:
        return text
    spans.sort(key=lambda span: (span[0], -span[1]))
    pieces: list[str] = []
    end = 0
    for start, span_end, name in spans:
        if start >= end:
            pieces += text[end:start], f"[redacted {name}]"
        end = max(end, span_end)
    return "".join([*pieces, text[end:]])


def find_partial_secret(text: str) -> tuple[int, str]:
    """Return the length of a possible partial secret at a text's end, and the secret's name."""
    for secret in _secrets if _secrets is not None else refresh():
        for length in range(min(len(secret.value) - 1, len(text)), _MIN_PARTIAL_CHARS - 1, -1):
            if text.endswith(secret.value[:length]):
                return length, secret.name
    return 0, ""


def has_redaction(value: Any) -> bool:
    """Return True if a JSON value contains a redaction marker.

    >>> has_redaction({"command": "echo [redacted API_KEY]"}), has_redaction(["it was [redacted]"])
    (True, False)
    """
    if isinstance(value, str):
        return _REDACTION.search(value) is not None
    if isinstance(value, dict):
        return any(has_redaction(key) or has_redaction(item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(map(has_redaction, value))


def find_redactions(content: bytes) -> list[str]:
    """Return the names in the redaction markers of a text, each once, sorted.

    >>> find_redactions(b"[redacted TOKEN] or [redacted TOKEN]")
    ['TOKEN']
    """
    markers = _REDACTION.findall(content.decode("utf-8", "replace"))
    return sorted({marker[len("[redacted ") : -1] for marker in markers})


def redact_bytes(text: bytes) -> bytes:
    """Return UTF-8 text without secret values, as `redact_values` does.

    >>> redact_bytes(b'{"event": "turn"}')
    b'{"event": "turn"}'
    """
    for secret in _secrets if _secrets is not None else refresh():
        if text.find(secret.raw) >= 0:  # `in` first checks for a number, at six times the cost
            text = text.replace(secret.raw, f"[redacted {secret.name}]".encode("utf-8", "replace"))
    return text


def redact_content(content: bytes) -> bytes:
    r"""Return a file's content without secrets; in binary content, asterisks replace them.

    Beyond `MAX_SCANNED_BYTES` bytes only literal values are found.

    >>> redact_content(b"plain"), redact_content(bytes([0, 255]))
    (b'plain', b'\x00\xff')
    """
    if len(content) <= MAX_SCANNED_BYTES:
        with contextlib.suppress(UnicodeDecodeError):
            return redact_untrusted(content.decode()).encode()
    for secret in _secrets if _secrets is not None else refresh():
        content = content.replace(secret.raw, b"*" * len(secret.raw))  # of the same length: it stays readable
    for start, end in find_key_spans(content[:MAX_SCANNED_BYTES].decode("latin-1")):
        content = content[:start] + b"*" * (end - start) + content[end:]
    return content


def redact_json(value: Any) -> Any:
    """Return a foreign JSON value without secrets in the texts and keys; numbers are unchanged.

    >>> redact_json({"ticks": [1, 2]})
    {'ticks': [1, 2]}
    """
    return map_texts(value, redact_untrusted)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with the texts changed, including keys. Keys that become equal are numbered.

    >>> map_texts(dict(a1=1, a2=["a3"], a=2), lambda text: text[:1])
    {'a (2)': 1, 'a (3)': ['a'], 'a': 2}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {change(key) if isinstance(key, str) else key: map_texts(item, change)
                   for key, item in value.items()}  # fmt: skip
        return changed if len(changed) == len(value) else _map_keys(value, change)
    return [map_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def _map_keys(value: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return an object with changed texts and distinct keys; unchanged keys keep their names."""
    renamed = {key: change(key) if isinstance(key, str) else key for key in value}
    used_names, changed = {key for key, name in renamed.items() if name == key}, {}
    for key, item in value.items():
        name, number = renamed[key], 1
        while name != key and name in used_names:
            number += 1
            name = f"{renamed[key]} ({number})"
        used_names.add(name)
        changed[name] = map_texts(item, change)
    return changed


def redact(text: str) -> str:
    """Return an error's text without secret values from the current environment, and without known key
    formats.

    >>> redact("401: bad key sk-proj-0123456789abcdef")
    '401: bad key [redacted]'
    """
    refresh()
    return redact_untrusted(_shapes().sub("[redacted]", redact_values(text)))


def redacted_excerpt(text: str, limit_chars: int = 200) -> str:
    r"""Return foreign text on one line, redacted and shortened, for use in an error message.

    >>> redacted_excerpt("<html>\n  <body>Bad gateway", 14)
    '<html> <body>…'
    """
    line = " ".join(redact(redact_values(text)[: 64 * limit_chars]).split())  # no secret is cut in two
    return line if len(line) <= limit_chars else line[: limit_chars - 1].rstrip() + "…"


def is_secret_name(name: str) -> bool:
    """Return True if a name suggests a secret value.

    >>> is_secret_name("GITHUB_TOKEN"), is_secret_name("Authorization"), is_secret_name("LOG_LEVEL")
    (True, True, False)
    """
    return bool(_SECRET_NAME.search(name))


def has_secret_shape(text: str) -> bool:
    """Return True if a text contains anything in a recognisable key format.

    >>> has_secret_shape("--token=ghp_0123456789abcdef"), has_secret_shape("--read-only")
    (True, False)
    """
    return (
        bool(_shapes().search(text))
        or any(find_key_spans(text))
        or any(_SECRET_NAME.search(name) and len(value) >= _MIN_NAMED_CHARS for name, value in _ASSIGNED.findall(text))
    )


def strip_userinfo(address: str) -> str:
    """Return an address for display: without user and password.

    >>> strip_userinfo("https://me:secret@example.org/v1"), strip_userinfo("me:secret@box:11434")
    ('https://example.org/v1', 'box:11434')
    """
    scheme, mark, remainder = address.rpartition("://")
    authority, slash, path = remainder.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def refresh() -> tuple[Secret, ...]:
    """Read the environment again; return the secrets, longest first."""
    global _secrets
    names_by_form = {form: name for value, name in _secret_values() for form in _encoded_forms(value)}
    longest_first = sorted(names_by_form.items(), key=lambda item: (-len(item[0]), item))
    _secrets = tuple(
        Secret(value, _fold_case(value), value.encode("utf-8", "surrogateescape"), name)
        for value, name in longest_first
    )
    return _secrets


def _find_secrets(text: str, depth: int, *, is_bytes: bool = False) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of secrets in a text with their names, through up to `depth` nested encodings."""
    folded = _fold_case(text)
    for secret in _secrets if _secrets is not None else refresh():
        start = folded.find(secret.folded)
        while start >= 0:
            yield start, start + len(secret.value), secret.name
            start = folded.find(secret.folded, start + 1)  # they may overlap
    may_be_hidden = can_contain_secret(text)
    if may_be_hidden:
        for start, end in find_key_spans(text):
            yield start, end, _KEY_FORMAT_NAME
    if depth and _may_be_encoded(text, may_be_hidden=may_be_hidden, is_bytes=is_bytes):
        for inner, map_span, is_inner_bytes in find_hidden_texts(text, is_bytes=is_bytes):
            for start, end, name in _find_secrets(inner, depth - 1, is_bytes=is_inner_bytes):
                yield *map_span(start, end), name


def _fold_case(text: str) -> str:
    """Return a text in lower case with unchanged length; only this letter would become two."""
    return text.replace("\u0130", "i").lower()


def _may_be_encoded(text: str, *, may_be_hidden: bool, is_bytes: bool) -> bool:
    if may_be_hidden and ("\\" in text or "%" in text or "&#" in text or has_long_word(text)):
        return True
    return not is_bytes and (
        (may_be_hidden and "=" in text) or has_short_key_lines(text) or has_disguised_letters(text)
    )


def _secret_values() -> Iterator[tuple[str, str]]:
    """Yield the secret values, each with the name used in redactions."""
    yield from _config_passwords.items()
    for name, value in os.environ.items():
        trimmed = value.strip()
        if _is_secret(name, trimmed):
            yield from ((value, name), (trimmed, name))
        if "@" in trimmed or "=" in trimmed:
            yield from ((part, name) for part in _secret_url_parts(trimmed))


def _is_secret(name: str, value: str) -> bool:
    if _named_variables.get(name):
        return len(value) >= _MIN_NAMED_CHARS
    if len(value) < _MIN_CHARS or value.isdigit():
        return False
    return name in _named_variables or bool(_SECRET_NAME.search(name)) or bool(_shapes().fullmatch(value))


def _secret_url_parts(text: str) -> Iterator[str]:
    """Yield the secret parts of an address, with or without a scheme: user and password, key parameters."""
    for name, value in _ASSIGNED.findall(text):
        if _SECRET_NAME.search(name) and len(value) >= _MIN_NAMED_CHARS:
            yield from {value, unquote(value)}
    match = _USERINFO.match(text)
    userinfo = match["userinfo"] if match else ""
    user, colon, password = userinfo.partition(":")
    if colon and password:
        yield f"{userinfo}@"  # with its sign, also a short one is found
        for secret_text in {userinfo, unquote(userinfo), password, unquote(password)}:
            if len(secret_text) >= _MIN_NAMED_CHARS:
                yield secret_text
    elif len(user) >= _MIN_LONE_USER_CHARS:
        yield user


def _encoded_forms(value: str) -> Iterator[str]:
    """Yield a value in literal form, and encoded for JSON, addresses, base64 and hex."""
    from base64 import b64encode, urlsafe_b64encode  # not wanted where there are no secrets

    yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield json.dumps(json.dumps(value))[3:-3]  # JSON in JSON
    raw = value.encode("utf-8", "surrogateescape")
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield from (encoded, re.sub("%..", lambda match: match[0].lower(), encoded))
    yield from (raw.hex(), raw.hex().upper(), raw.decode("latin-1"))  # the last as `find_hidden_texts` reads bytes
    for offset in range(3):  # base64 looks different after each number of bytes, modulo 3
        for encode in (b64encode, urlsafe_b64encode):
            # The first and last characters depend on the text around the value.
            middle = encode(bytes(offset) + raw).decode().rstrip("=")[(0, 2, 3)[offset] :]
            middle = middle[: len(middle) - 1] if (offset + len(raw)) % 3 else middle
            if len(middle) >= _MIN_BASE64_CHARS:
                yield middle


def _iter_option_texts(options: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a provider's options, with the key."""
    if isinstance(options, str):
        yield key, options
    elif isinstance(options, Mapping):
        for inner_key, value in options.items():
            yield from _iter_option_texts(value, str(inner_key))
            yield from ((key, name) for name in (inner_key,) if key == "env" and isinstance(name, str))
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from _iter_option_texts(value, key)
