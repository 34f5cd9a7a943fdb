"""Installation commands for missing optional packages."""

from __future__ import annotations

import sys
from pathlib import Path


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, for pipx, uv or pip.

    >>> install_command("dash")
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
