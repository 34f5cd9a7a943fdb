"""State of a command before the module is loaded, sufficient for `lemming --help`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass
class CommandSession:
    """State of the running command.

    `root`: the folder typed for the organisation. `base`: the organisation's folder, once looked up by a
    command. `command`: the typed command. `typed_within`: the first word after the command, and known words
    there with suggestions.
    """

    root: str | None = None
    base: Path | None = None
    command: str = "lemming"
    typed_within: tuple[str, Mapping[str, str]] | None = None
