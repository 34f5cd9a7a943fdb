"""What was read of the files below one folder: a file is read again only when it may have changed.

Rules: `lemming.files.stamps`. What is kept may be dropped at any moment, and is, beyond a number of bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lemming.errors import ConfigError
from lemming.files import fs
from lemming.files.stamps import Load, Reading, identity_in, is_current, is_exact, look

T = TypeVar("T")

KEPT_BYTES = 32 << 20
_BYTES_MORE = 1 << 10  # what Python adds to a small value


class FileCache:
    """The values of files, by path relative to the folder; each file is always read by the same `decode`.

    Values are not to be changed: whoever asks next is given the same ones.
    """

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._readings: dict[str, Reading[Any]] = {}
        self._kept_bytes = 0

    def value(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> T:
        """Return what a file says. Raises as `reading` does, and what `decode` raises."""
        outcome = self.reading(file, decode, limit_bytes=limit_bytes, load=load).outcome
        if isinstance(outcome, ConfigError):
            raise outcome.with_traceback(None)
        return outcome

    def reading(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> Reading[T]:
        """Return what a file says, or what is wrong with it; the very same value when nothing is new.

        `decode` makes the value of its bytes, or raises `ConfigError`; `load` reads those that say it.
        Raises `OSError` for a file that cannot be read, one that is no regular file among them.
        """
        path, known = f"{self._base}/{file}", self._readings.get(file)
        if known is not None and is_current(known, path):
            return known
        reading = look(path, known, decode, limit_bytes=limit_bytes, load=load)
        self._keep(file, reading)
        return reading

    def wrote(
        self, file: str, value: object, raw: bytes, status: os.stat_result, *, digest: str = ""
    ) -> None:
        """Take note of what this process wrote: it is not read again where stamps tell of every change.

        `raw`: the bytes that say it. Of a file whose `digest` somebody asks for, it is given.
        """
        identity = identity_in(status)
        self._keep(file, Reading(value, digest, identity, is_exact(identity), len(raw)))

    def _keep(self, file: str, reading: Reading[Any]) -> None:
        if replaced := self._readings.pop(file, None):
            self._kept_bytes -= replaced.size + _BYTES_MORE
        self._readings[file] = reading
        self._kept_bytes += reading.size + _BYTES_MORE
        while self._kept_bytes > KEPT_BYTES and len(self._readings) > 1:
            self._kept_bytes -= self._readings.pop(next(iter(self._readings))).size + _BYTES_MORE
