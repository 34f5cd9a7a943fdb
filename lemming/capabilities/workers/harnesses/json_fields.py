"""Fields of JSON that a model or a harness has written, of any type or missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from fnmatch import fnmatchcase
from operator import add, sub
from typing import Any

from lemming.kernel.base.integers import clamp_int

_MARK = re.compile(r"\{([\w.*-]+)\}")


@dataclass(frozen=True)
class RunTokens:
    """Tokens of one run. `input` includes `cached` and `written`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    def __add__(self, other: RunTokens) -> RunTokens:
        return RunTokens(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: RunTokens) -> RunTokens:
        return RunTokens(*(max(0, count) for count in map(sub, astuple(self), astuple(other))))

    def compute_cost(self, prices: Mapping[str, float]) -> float | None:
        """Return the dollars by prices per token of `input`, `output`, `cached`, `written`, or None without prices."""
        counts: dict[str, int] = asdict(self) | {"input": max(0, self.input - self.cached - self.written)}
        return sum(count * prices.get(kind, prices["input"]) for kind, count in counts.items()) if prices else None


OWN_TOKENS = ("input", "output", "cached", "written")
"""Paths of tokens as the engine writes them."""


class JsonFields:
    """The fields of a JSON object. A value that is no object has none. `values`: the fields themselves."""

    def __init__(self, value: object) -> None:
        self.values: Mapping[str, Any] = value if isinstance(value, dict) else {}

    def get_value(self, path: str) -> Any:
        """Return any value, or None. In a path, "*" stands for all values of an object, and "-1" for the last of a list.

        >>> fields = JsonFields({"steps": [{"text": "one"}, {"text": "two"}], "models": {"m1": 5}})
        >>> fields.get_value("steps.text"), fields.get_value("steps.-1.text"), fields.get_value("models.*")
        (['one', 'two'], 'two', [5])
        """
        value: Any = self.values
        for key in path.split("."):
            if isinstance(value, dict):
                value = [*value.values()] if key == "*" else value.get(key)
            elif not isinstance(value, list):
                return None
            elif key == "-1":
                value = value[-1] if value else None
            else:
                value = [part.get(key) for part in value if isinstance(part, dict)]
        return value

    def get_object(self, path: str) -> JsonFields:
        """Return an object, or an empty one."""
        return JsonFields(self.get_value(path))

    def get_objects(self, path: str) -> list[JsonFields]:
        """Return the objects of a list, the only one, or an empty list."""
        value = self.get_value(path)
        return [JsonFields(part) for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)]

    def get_text(self, *paths: str) -> str:
        """Return the first text that is not empty, or an empty text."""
        return clean_text(
            next((value for path in paths if isinstance(value := self.get_value(path), str) and value), "")
        )

    def get_count(self, path: str) -> int:
        """Return a number of at least 0, or 0 for anything else. A huge one is bounded: in a limit it must not vanish."""
        return clamp_int(self.get_value(path)) or 0

    def get_cost(self, path: str) -> float | None:
        """Return an amount of dollars, or None for anything else."""
        value = self.get_value(path)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if 0 <= value <= 1e9 and math.isfinite(value) else None

    def sum_tokens(self, shape: Sequence[str]) -> RunTokens:
        """Return the tokens of a usage. `shape`: paths of input, output, cached and written tokens; several are added.

        >>> shape = ("input cache.read", "output", "cache.read", "")
        >>> JsonFields({"input": 7, "cache": {"read": 3}, "output": 2}).sum_tokens(shape)
        RunTokens(input=10, output=2, cached=3, written=0)
        """
        return RunTokens(*(sum(map(self.get_count, paths.split())) for paths in shape))

    def fill(self, *templates: str) -> str:
        """Return the first text that is not empty, with values in place of {PATH}, or an empty text.

        >>> JsonFields({"error": {"status": 401}}).fill("{error.message}", "status {error.status}")
        'status 401'
        """
        texts = (_MARK.sub(lambda mark: _to_text(self.get_value(mark[1])), template) for template in templates)
        return clean_text(next(filter(None, texts), ""))

    def has_value(self, path: str, options: Any) -> bool:
        """Return True if a value is the option, or one of a list of options. Texts may be patterns, such as "error_*"."""
        value = self.get_value(path)
        for option in options if isinstance(options, list) else [options]:
            if isinstance(option, str) and isinstance(value, str) and fnmatchcase(value, option):
                return True
            if isinstance(value, type(option)) and value == option:
                return True
        return False


def clean_text(text: str) -> str:
    """Return a text that a file can hold: an escape of JSON may produce half a character."""
    return text.encode("utf-8", "replace").decode() if "\ud800" <= max(text, default="") <= "\udfff" else text


def _to_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(filter(None, map(_to_text, value)))
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
