"""What to type where a package is first needed and not there."""

from __future__ import annotations

import sys
from pathlib import Path


def install_line(extra: str) -> str:
    """Return the line that adds an extra to this environment, as it was made: by pipx, uv or whatever else.

    >>> install_line("dash")
    "pip install 'lemming-engine[dash]'"
    """
    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").exists():
        program = "pipx install --force"
    elif (environment / "uv-receipt.toml").exists():
        program = "uv tool install --force"
    else:
        program = "pip install"
    return f"{program} 'lemming-engine[{extra}]'"
