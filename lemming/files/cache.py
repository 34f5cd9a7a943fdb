"""What was read of the files below one folder: a file is read again only when it may have changed.

Rules: `lemming.files.stamps`. What is kept may be dropped at any moment, and is, beyond a number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lemming.errors import ConfigError
from lemming.files.stamps import Reading, is_current, look

T = TypeVar("T")

KEPT_BYTES = 64 << 20
_BYTES_MORE = 1 << 10  # what Python adds to a small value


class FileCache:
    """The values of files, by path relative to the folder; each file is always read by the same `decode`.

    Values are not to be changed: whoever asks next is given the same ones.
    """

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._readings: dict[str, Reading[Any]] = {}
        self._kept_bytes = 0

    def value(self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int) -> T:
        """Return what a file says. Raises `OSError` when it cannot be read, and what `decode` raises."""
        outcome = self.reading(file, decode, limit_bytes=limit_bytes).outcome
        if isinstance(outcome, ConfigError):
            raise outcome
        return outcome

    def reading(self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int) -> Reading[T]:
        """Return what a file says, or what is wrong with it; the very same value when nothing is new.

        `decode` makes the value of its bytes, or raises `ConfigError`. Raises `OSError` for a file that
        cannot be read, one that is no regular file among them.
        """
        path, known = f"{self._base}/{file}", self._readings.get(file)
        if known is not None and is_current(known, path):
            return known
        reading = look(path, known, decode, limit_bytes=limit_bytes)
        self._keep(file, reading)
        return reading

    def _keep(self, file: str, reading: Reading[Any]) -> None:
        if replaced := self._readings.pop(file, None):
            self._kept_bytes -= _size(replaced)
        self._readings[file] = reading
        self._kept_bytes += _size(reading)
        while self._kept_bytes > KEPT_BYTES and len(self._readings) > 1:
            self._kept_bytes -= _size(self._readings.pop(next(iter(self._readings))))


def _size(reading: Reading[Any]) -> int:
    return reading.identity[1] + _BYTES_MORE
