"""Fields of JSON that a model or a harness writes: each may be missing, of another type, or huge. Pure.

A path names a field of nested objects, such as "error.message".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import RunTokens
from lemming.kernel.base.integers import clamp_int

# Paths of input, output, cached and written tokens; several paths are added. `input` includes what was cached.
_ANTHROPIC = "input_tokens cache_read_input_tokens cache_creation_input_tokens"
_CLAUDE = "inputTokens cacheReadInputTokens cacheCreationInputTokens"
_USAGES = {
    "anthropic": (_ANTHROPIC, "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "openai-responses": ("input_tokens", "output_tokens", "input_tokens_details.cached_tokens", ""),
    "openai-chat": ("prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens", ""),
    "gemini": (
        "promptTokenCount toolUsePromptTokenCount", "candidatesTokenCount thoughtsTokenCount", "cachedContentTokenCount", "",
    ),
    "claude-code": (_CLAUDE, "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
    "codex": ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens"),
    "gemini-cli": ("input_tokens", "output_tokens", "cached", ""),
    "opencode": ("input cache.read cache.write", "output reasoning", "cache.read", "cache.write"),
    "pi": ("input cacheRead cacheWrite", "output", "cacheRead", "cacheWrite"),
}  # fmt: skip


class JsonFields:
    """The fields of a JSON object. A value that is no object has none. `values`: the fields themselves."""

    def __init__(self, value: object) -> None:
        self.values: Mapping[str, Any] = value if isinstance(value, dict) else {}

    def get_value(self, path: str) -> Any:
        """Return any value, or None."""
        value: Any = self.values
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def get_object(self, path: str) -> JsonFields:
        """Return an object, or an empty one."""
        return JsonFields(self.get_value(path))

    def get_objects(self, path: str) -> list[JsonFields]:
        """Return the objects of a list, or an empty list."""
        value = self.get_value(path)
        return [JsonFields(part) for part in value if isinstance(part, dict)] if isinstance(value, list) else []

    def get_text(self, *paths: str) -> str:
        """Return the first text that is not empty, or an empty text."""
        text = next((value for path in paths if isinstance(value := self.get_value(path), str) and value), "")
        # An escape may produce half a character, which no file can hold.
        return text.encode("utf-8", "replace").decode() if "\ud800" <= max(text, default="") <= "\udfff" else text

    def get_count(self, path: str) -> int:
        """Return a number of at least 0, or 0 for anything else. A huge one is bounded: in a limit it must not vanish."""
        return clamp_int(self.get_value(path)) or 0

    def get_cost(self, path: str) -> float | None:
        """Return an amount of dollars, or None for anything else."""
        value = self.get_value(path)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if 0 <= value <= 1e9 and math.isfinite(value) else None

    def sum_tokens(self, shape: str) -> RunTokens:
        """Return the tokens of a usage in the words of an API or a harness, `shape`.

        >>> JsonFields({"input": 7, "cache": {"read": 3}, "output": 2}).sum_tokens("opencode")
        RunTokens(input=10, output=2, cached=3, written=0)
        """
        return RunTokens(*(sum(map(self.get_count, paths.split())) for paths in _USAGES[shape]))
