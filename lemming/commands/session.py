"""What one run of the program knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Session:
    """`root` is the folder that was given for the organisation's, `base` the organisation's folder, once a
    command has asked for it; `command` is what was typed."""

    root: str | None = None
    base: Path | None = None
    command: str = "lemming"
