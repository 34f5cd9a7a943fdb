"""What is known of a command before it is loaded: all that `lemming --help` needs of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass
class CommandSession:
    """`root` is the folder that was given for the organisation's, `base` the organisation's folder, once a
    command has asked for it; `command` is what was typed. `typed_within`: the first word behind it, and the
    words that people type there, each with what to do instead."""

    root: str | None = None
    base: Path | None = None
    command: str = "lemming"
    typed_within: tuple[str, Mapping[str, str]] | None = None
