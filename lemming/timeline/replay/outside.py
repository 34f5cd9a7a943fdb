"""Files that turns wrote outside their organisation, put into a folder of it instead."""

from __future__ import annotations

from pathlib import Path

from lemming.files import fs
from lemming.files.effects import FileEffect

OUTSIDE = ".lemming/outside"
"""Where ticks that are run again put them."""


def moved_inside(base: Path, effect: FileEffect) -> FileEffect:
    """Return an effect that changes nothing outside the organisation in `base`."""
    if not effect.root:
        return effect
    root = Path(f"{base}/{OUTSIDE}{effect.root}")
    fs.make_root(root)
    return effect._replace(root=str(root))
