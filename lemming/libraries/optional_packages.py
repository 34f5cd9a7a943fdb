"""Installation commands for missing optional packages, and the packages that everything needs that serves HTTP."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from lemming.kernel.base.errors import UsageError

_SERVER_PACKAGES = ("starlette", "uvicorn")


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, for pipx, uv or pip.

    >>> install_command("serve")
    "pip install 'lemming-engine[serve]'"
    """
    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").exists():
        program = "pipx install --force"
    elif (environment / "uv-receipt.toml").exists():
        program = "uv tool install --force"
    else:
        program = "pip install"
    return f"{program} 'lemming-engine[{extra}]'"


def can_serve() -> bool:
    """Return True if the packages of the HTTP server are installed."""
    return all(find_spec(name) is not None for name in _SERVER_PACKAGES)


def require_server(user: str) -> None:
    """Raise `UsageError` that names the extra, if the packages of the HTTP server are missing."""
    if not can_serve():
        message = f"{user} needs the packages {' and '.join(_SERVER_PACKAGES)}, which are not installed"
        raise UsageError(message, hint=install_command("serve"))
