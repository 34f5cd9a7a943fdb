"""Recognisable formats of keys and tokens, as issued by well-known services.

The formats are strict, because every match is removed everywhere: a hash, a uuid, a base64 image or a
hyphenated word does not match. Placeholders (`Bearer YOUR_KEY`, `me:${PASSWORD}@`) do not match either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits

Span = tuple[int, int]

_LETTERS = f"{ascii_letters}{digits}+/_.~-"

# Each format begins with letters of its own, which are searched first. A key that could be part of a longer word,
# or of a base64 image, must be a word of its own. Lookaheads are short and never nested: otherwise many would
# take quadratic time.
_KEY_FORMATS = (
    # models
    r"sk-(?:proj|svcacct|ant)-(?=[a-z_-]{0,40}[0-9A-Z])[\w-]{32,}",
    r"sk-(?<![A-Za-z0-9]sk-)(?:proj|svcacct|admin|ant|or|lf)-(?=[a-z_-]{0,40}[0-9A-Z])[\w-]{16,}",
    r"sk-(?<![A-Za-z0-9]sk-)(?=[a-z]{0,40}[0-9A-Z])[A-Za-z0-9]{20,}",
    r"gsk_(?<![A-Za-z0-9]gsk_)[A-Za-z0-9]{40,}",
    r"xai-(?<![A-Za-z0-9]xai-)[A-Za-z0-9]{40,}",
    r"pplx-(?<![A-Za-z0-9]pplx-)[A-Za-z0-9]{40,}",
    r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{30,}",
    # payments
    r"sk_(?<![A-Za-z0-9]sk_)(?:live|test)_[A-Za-z0-9]{16,}",
    r"rk_(?<![A-Za-z0-9]rk_)(?:live|test)_[A-Za-z0-9]{16,}",
    r"whsec_[A-Za-z0-9+/]{24,}=*",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    # code and packages
    r"gh[opsur]_[A-Za-z0-9]{20,}",
    r"github_pat_\w{20,}",
    r"gl(?:pat|ptt|dt|rt|cbt|soat|oas|agent)-[\w.-]{20,}",
    r"npm_(?<![A-Za-z0-9]npm_)[A-Za-z0-9]{30,}",
    r"pypi-AgE[\w-]{30,}",
    # mail and messages
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9-]{20,}",
    r"hooks\.slack\.com/services/[A-Z0-9]+/[A-Z0-9]+/\w{20,}",
    r"SG\.(?<![\w+/-]SG\.)[\w-]{16,}\.[\w-]{30,}",
    # clouds
    r"A(?:KI|SI|BI|CC)A(?<![A-Za-z0-9+/_-]A..A)[A-Z0-9]{16}(?![A-Za-z0-9+/=_-])",
    r"AIza(?<![\w+/-]AIza)[\w-]{35}(?![\w+/=-])",
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{20,}",
    r"JQQJ99(?<=[A-Za-z0-9]{52}JQQJ99)[A-Za-z0-9]{10}AC[A-Za-z0-9]{6}",  # Azure, which has 52 before that
    r"do[opr]_v1_[0-9a-f]{40,}",
    r"dapi[0-9a-f]{32}",
    r"hv[bs]\.(?<![A-Za-z0-9]hv.\.)[\w-]{24,}",
    # public
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"eyJ(?<![\w-]eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)*",  # a JSON web token
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:"
    r"(?:(?!-----)[\x20-\x7e\s]){16,16384}?-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:\s|\\+[nr]|[A-Za-z0-9+/=]){40,})",
)
_keys = cache(lambda: re.compile("|".join(_KEY_FORMATS), re.A))
_PREFIX_CHARS = {"JQQJ99": 52}

# Keys recognised by the text before them.
_ASSIGNMENT = r"[\"'\\]{0,4}\s{0,3}[:=]>?\s{0,3}[\"'\\]{0,4}"
_MIXED = r"(?=[\w.~+/-]{0,99}[0-9])(?=[\w.~+/-]{0,99}[A-Za-z])[\w.~+/-]"
_DOTTED_NAMES = r"(?![a-z_]{1,40}(?:\.[a-z_]{1,40}){1,8}(?![\w.~+/=-]))"  # not, as in code
_labelled = cache(lambda: re.compile(
    r"authorization" + _ASSIGNMENT + r"(?:(?:bearer|basic|token|bot|apikey|digest)\s+)?"
    + _DOTTED_NAMES + r"(?P<header>[\w.~+/=-]{16,})"
    r"|bearer\s(?P<bearer>" + _MIXED + r"{20,}=*)"
    r"|(?:api|auth)[-_]?(?:key|token)" + _ASSIGNMENT + r"(?P<named>"
    + _MIXED + r"{20,}=*)"
    r"|secret_?(?:access_?)?key" + _ASSIGNMENT + r"(?P<aws>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])"
    r"|session_?token" + _ASSIGNMENT + r"(?P<session>[A-Za-z0-9+/]{80,}=*)"
    r"|(?:account|access)key=(?P<azure>[A-Za-z0-9+/]{40,}=*)"
    r"|[?&;]sig=(?P<sig>[A-Za-z0-9+/%]{43,})",
    re.I | re.A,
))  # fmt: skip
# One of these stands in whatever matches that, without its hyphens and underscores: they are found sooner.
_LABELS = (
    *("authorization", "bearer", "apikey", "apitoken", "authkey", "authtoken"),
    *("secretkey", "accesskey", "accountkey", "sessiontoken", "sig="),
)
_IN_ADDRESS = re.compile(r"://[^\s/@:\"'<>]{0,256}:(?P<password>[^\s/@\"'<>]{3,256})@[\w\[]")
_IN_CONNECTION = re.compile(r"(?<=;)\s?(?:password|pwd)\s?=\s?(?P<password>[^;\s\"'\\]{4,128})", re.I)
_placeholder = cache(
    lambda: re.compile(
        r"[<{$%*.\[(]|redacted|placeholder|change|example|x+\Z|(?-i:[A-Z][A-Z_]*)\Z"
        r"|(?:my|your|the|some)?[-_]?(?:api|access|secret|db|user)?[-_]?"
        r"(?:pass|passw|passwd|password|pwd|pw|secret|token|key)(?:[-_]?here)?\Z"
        r"|(?:your|my)[-_]",
        re.I,
    )
)
_IN_WORDS = bytes(b"w"[0] if chr(byte) in _LETTERS else b" "[0] for byte in range(256))
_LONG = b"w" * 16


def has_long_word(text: str) -> bool:
    """Return True if a text has a word as long as a key; very fast, and most texts have none."""
    return _LONG in text.encode("utf-8", "replace").translate(_IN_WORDS)


def can_contain_secret(text: str) -> bool:
    """Return True if a text could contain a key, or an encoded text; fast too."""
    has_sign = "\\" in text or "%" in text or "=" in text or "&#" in text or "@" in text
    return has_sign or has_long_word(text)


def find_key_spans(text: str) -> Iterator[Span]:
    """Yield the spans of keys in a text, recognised by format.

    >>> [*find_key_spans("key: ghp_0123456789abcdefghij0123456789abcdef, ok")]
    [(5, 45)]
    """
    if has_long_word(text):
        for match in _keys().finditer(text):
            start, end = match.span()
            yield start - _PREFIX_CHARS.get(text[start : start + 6], 0), end
        bare = text.lower().replace("-", "").replace("_", "")
        if any(label in bare for label in _LABELS):
            yield from _iter_group_spans(_labelled(), text)
    if "://" in text and "@" in text:
        yield from _iter_group_spans(_IN_ADDRESS, text)
    if "=" in text and ";" in text and ("password" in (lowercase := text.casefold()) or "pwd" in lowercase):
        yield from _iter_group_spans(_IN_CONNECTION, text)


def _iter_group_spans(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        group = match.lastgroup
        assert group, "every alternative of the pattern is a group"
        if not _placeholder().match(match[group]):
            yield match.span(group)
