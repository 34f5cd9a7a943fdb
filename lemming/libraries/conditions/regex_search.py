"""Regular expressions in the files of an organisation: Python's syntax, and a time in proportion to the text.

The Rust engine of pydantic_core answers whether one matches. It cannot tell where; RE2 finds the matches that a
gate redacts. Neither has look-around or back references. Differences from Python: docs/gates.md, "What it looks for".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from lemming.kernel.base.name_patterns import InvalidPattern, compile_schema_pattern, estimate_states

MAX_SEARCH_COST = 2_000_000_000
"""Maximum weight of a pattern times the length of a text: 1.3 seconds for the worst pattern."""
MAX_REPLACE_COST = 1_000_000_000
"""Maximum characters that a replacement reads: each match may need a look at all that follows."""
_STATES_PER_READING = 10

_TOKEN = re.compile(
    r"\\(?:u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8})|[pPx]\{[^}]*\}|.)"
    r"|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}|.",
    re.DOTALL,
)
_OUTSIDE_CLASS = {r"\<": "<", r"\>": ">", r"\Z": r"\z", "{": r"\{", "{}": r"\{\}"}
_INSIDE_CLASS = {r"\<": "<", r"\>": ">", "[": r"\[", "&": r"\&", "~": r"\~"}
"""Signs that mean themselves in Python's expressions, and something else in Rust's."""
_UNICODE_CLASSES = {r"\d": r"\p{Nd}", r"\w": r"\pL\pM\p{Nd}\p{Pc}", r"\s": r"\s\x0b\x85\pZ"}
"""The classes of the Rust engine in RE2's words: RE2's own have ASCII characters only."""


class SearchTooCostly(InvalidPattern):
    """The expression needs more work than permitted for a text of this length."""


class SearchRegex:
    """A regular expression that is searched for; safe to share between threads."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern. Raises `InvalidPattern` for an invalid or unsupported pattern."""
        self.pattern = pattern
        self._engine = compile_schema_pattern(_translate(pattern))

    def search(self, text: str) -> bool:
        """Return True if the expression matches in a text, as `re.search` would. Raises `SearchTooCostly`."""
        if self._engine.weight * len(text) > MAX_SEARCH_COST:
            raise SearchTooCostly(f"it takes too long on a text of {len(text)} characters")
        text = _to_unicode(text)
        return self._engine.has_match(text) or (self._has_break_after_end(text) and self._engine.has_match(text[:-1]))

    def _has_break_after_end(self, text: str) -> bool:
        """Return True if `$` in Python's sense matches before the end: there, before a last line break, too."""
        return "$" in self.pattern and text.endswith("\n")


class RedactingRegex(SearchRegex):
    """A regular expression whose matches are replaced."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern for both engines. Raises `InvalidPattern`."""
        import re2

        super().__init__(pattern)
        options = re2.Options()
        options.log_errors, options.never_capture = False, True
        try:
            self._re2: Any = re2.compile(_translate(pattern, _UNICODE_CLASSES), options)
        except re2.error as error:
            raise InvalidPattern(f"its matches cannot be found: {error.args[0].decode('utf-8', 'replace')}") from None
        self._readings = 1 + estimate_states(pattern, class_weight=1) // _STATES_PER_READING

    def sub(self, text: str, replacement: str) -> str:
        """Return a text with all matches replaced. Raises `SearchTooCostly`, and `InvalidPattern` where RE2 differs."""
        if not self.search(text):
            return text
        text = _to_unicode(text)
        if self._has_break_after_end(text) and (replaced := self._replace(text[:-1], replacement)) is not None:
            return replaced + "\n"
        if (replaced := self._replace(text, replacement)) is not None:
            return replaced
        if self.search(""):
            return text
        raise InvalidPattern(r"the place of its match cannot be found: next to \b must be ASCII letters")

    def _replace(self, text: str, replacement: str) -> str | None:
        """Return a text with the matches replaced that RE2 finds, or None without any."""
        parts, position, remaining = list[str](), 0, MAX_REPLACE_COST
        for match in self._re2.finditer(text):
            start, end = match.span()
            remaining -= (len(text) - position) * self._readings
            if remaining < 0:
                raise SearchTooCostly(f"it takes too long on a text of {len(text)} characters")
            if end > start:
                parts += [text[position:start], replacement]
                position = end
        return "".join([*parts, text[position:]]) if parts else None


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> SearchRegex:
    """Return a compiled regular expression.

    Raises `InvalidPattern` with the reason for an invalid or unsupported pattern.

    >>> compile_regex("(a+)+$").search("a" * 5000 + "b"), compile_regex("^é.$").search("éa")
    (False, True)
    """
    return SearchRegex(pattern)


@lru_cache(maxsize=512)
def compile_redaction(pattern: str) -> RedactingRegex:
    """Return a compiled regular expression whose matches can be replaced. Raises `InvalidPattern`.

    >>> compile_redaction("n[0-9]+").sub("n12 m3", "?")
    '? m3'
    """
    return RedactingRegex(pattern)


def _to_unicode(text: str) -> str:
    """Return a text without lone surrogates, in which no engine would find anything."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _translate(pattern: str, classes: Mapping[str, str] = MappingProxyType({})) -> str:
    r"""Return a Python pattern in the spelling of the engines, with other words for some classes.

    Raises `InvalidPattern` for a repetition of a repetition, which the engines would read in another way.

    >>> print(_translate(r"{[a[]{,2}\Z"), _translate(r"\w[^\s]", {r"\w": r"\pL", r"\s": r"\pZ"}))
    \{[a\[]{0,2}\z [\pL][^\pZ]
    """
    parts: list[str] = []
    class_content: str | None = None
    repetition = ""
    for match in _TOKEN.finditer(pattern):
        part, least = match[0], match["least"]
        if code := match["u"] or match["U"]:
            part = f"\\x{{{code}}}"
        if class_content is not None:
            is_end = part == "]" and class_content not in ("", "^")
            class_content = None if is_end else class_content + part
            if classes and part == r"\W" and class_content and class_content[0] == "^":
                raise InvalidPattern(r"\W must not be in a class [^...]: write \pL for letters")
            parts.append(_INSIDE_CLASS.get(part) or classes.get(part, part))
            continue
        if part in ("*", "+", "?") or least or match["comma"]:
            if repetition and (repetition, part) not in (("*", "?"), ("+", "?"), ("?", "?"), ("}", "?")):
                raise InvalidPattern("possessive and doubled repetitions such as *+ are not supported")
            repetition = f"{repetition}{part[-1]}"
            part = f"{{0{part[1:]}" if part.startswith("{,") else part
        else:
            repetition = ""
        class_content = "" if part == "[" else None
        if part.lower() in classes:
            part = f"[{'^' if part.isupper() else ''}{classes[part.lower()]}]"
        parts.append(_OUTSIDE_CLASS.get(part, part))
    return "".join(parts)
