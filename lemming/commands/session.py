"""What one run of the program knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Session:
    """`base` is the organisation's folder, once a command has asked for it; `command` is what was typed."""

    base: Path | None = None
    command: str = "lemming"
