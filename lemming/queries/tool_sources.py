"""Tool files that are not loaded, and the search for a tool's file. Reads text only and runs no code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath

_SOURCE_LIMIT_BYTES = 1 << 20


def explain_unloaded_tool(base: OrgPath, agent_name: str, tool_name: str) -> tuple[str, str, bool] | None:
    """Return the reason a tool file is not loaded, the fix, and True if a setting is wrong.

    Returns None if no file in `tools/` seems to contain the tool.
    """
    file = _find_source(Path(base), agent_name, tool_name)
    if not file:
        return None
    if any(Path(file).match(pattern) for pattern in load_config(base).org.tool_files):
        reason = f'tool "{tool_name}" is in {file}, which is not loaded: the workspace is not trusted'
        return reason, "review it with `lemming trust`, accept it with `lemming trust --yes`", False
    reason = f'tool "{tool_name}" is in {file}, which no pattern in tool_files matches'
    return reason, f'add "{Path(file).parent}/*.py" to tool_files in config/org.json', True


def find_unloaded_files(base: OrgPath) -> Iterator[Problem]:
    """Yield a warning for each file with `@tool` in a tool folder without a match in `tool_files`."""
    patterns = load_config(base).org.tool_files
    for folder in ("tools", *(f"{paths.agent_folder(name)}/tools" for name in _list_agent_names(base))):
        for file in (f"{folder}/{name}" for name in _list_python_files(Path(base) / folder)):
            is_matched = any(Path(file).match(pattern) for pattern in patterns)
            if not is_matched and "@tool" in _load_source(Path(base) / file):
                message = "no pattern in tool_files matches the file, so it is not loaded"
                hint = f'add "{folder}/*.py" to tool_files in config/org.json, or remove the file'
                yield Problem(message, file, hint=hint, severity="warning")


def _list_agent_names(base: OrgPath) -> list[str]:
    return [*filter(paths.AGENT_NAME.match, list_agent_folders(base))]


def _find_source(base: Path, agent_name: str, tool_name: str) -> str:
    for folder in ("tools", f"{paths.agent_folder(agent_name)}/tools"):
        for name in _list_python_files(base / folder):
            text = _load_source(base / folder / name)
            if Path(name).stem == tool_name or f"def {tool_name}(" in text or f'"{tool_name}"' in text:
                return f"{folder}/{name}"
    return ""


def _load_source(path: Path) -> str:
    try:
        return fs.read_bytes(path, _SOURCE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:  # where tools are loaded, that is said
        return ""


def _list_python_files(folder: Path) -> list[str]:
    try:
        names = fs.list_names(folder)
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(".py") and not name.startswith("_"))
