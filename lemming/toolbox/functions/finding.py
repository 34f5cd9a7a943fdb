"""Which files of an organisation hold tools, and whether an agent could have written them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lemming.access.grants import resolve
from lemming.agents import Agent
from lemming.errors import ConfigError, LemmingError, Problem
from lemming.files import fs
from lemming.files.documents import unreadable
from lemming.files.refusals import looking


def find_files(base: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files that the patterns name, sorted; `__init__.py` and names that begin with _ are none.

    Raises `ConfigError` for a pattern that leads elsewhere, and for a link.
    """
    found: set[str] = set()
    for pattern in patterns:
        parts = pattern.split("/")
        if pattern.startswith("/") or ".." in parts or "\\" in pattern or not pattern.endswith(".py"):
            hint = 'write "tools/*.py", or "agents/*/tools/*.py"'
            raise ConfigError(
                f'tool_files: "{pattern}" names no Python files in here', where="config/org.json", hint=hint
            )
        try:
            found |= _matches(base, pattern)
        except OSError as error:
            raise unreadable(pattern, error) from error
    files = sorted(file for file in found if not Path(file).name.startswith("_"))
    for file in files:
        if not Path(file).stem.isidentifier():
            hint = "letters, digits and _ only"
            raise ConfigError("a file of tools is a Python module; rename it", where=file, hint=hint)
        if (base.resolve() / file) != (base / file).resolve():
            raise ConfigError("symbolic link refused: tools are loaded from real files", where=file)
    return files


@looking
def _matches(base: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(base)) for path in base.glob(pattern) if path.is_file()}


def refuse_writable(base: Path, files: Sequence[str], agents: Mapping[str, Agent]) -> None:
    """Raise `ConfigError` that names each file, or folder of one, that some agent may write."""
    places = sorted({*files, *(f"{Path(file).parent}/any.py" for file in files)})
    problems = [
        Problem(
            f"{agent.name} may write it: {why}",
            place if place in files else str(Path(place).parent),
            hint="code that an agent can write is not loaded: move it, or take the right away",
        )
        for place in places
        for agent in agents.values()
        if (why := _why_writable(base, place, agent))
    ]
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))


def _why_writable(base: Path, file: str, agent: Agent) -> str:
    if file.startswith(f"agents/{agent.name}/workspace/"):
        return "it is in its workspace"
    if any(_allows_write(agent, base, f"{root}/{file}") for root in {base, base.resolve()}):
        return "permissions.file_access.allow_write"
    return ""


def _allows_write(agent: Agent, base: Path, path: str) -> bool:
    try:
        resolve(agent, base, path, "write", caller="tool_files")
    except LemmingError:
        return False
    return True


def with_neighbours(base: Path, files: Sequence[str]) -> list[str]:
    """Return the files, and those beside them, which they may import."""
    folders = {str(Path(file).parent) for file in files}
    beside = (f"{folder}/{name}" for folder in folders for name in fs.list_names(f"{base}/{folder}"))
    return sorted({*files, *(file for file in beside if file.endswith(".py"))})
