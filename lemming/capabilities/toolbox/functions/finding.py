"""Which files of an organisation hold tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.documents import unreadable
from lemming.kernel.files.real_place import real_path
from lemming.kernel.files.refusals import looking
from lemming.kernel.files.stamps import is_file
from lemming.kernel.org.config import ORG_FILE


def owner_of(file: str) -> str:
    """Return the agent that alone has what a file brings; empty where all have it.

    >>> owner_of("agents/ada/tools/git.py"), owner_of("tools/git.py")
    ('ada', '')
    """
    top, _, below = file.partition("/")
    return below.partition("/")[0] if top == "agents" and "/" in below else ""


def by_owner(problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
    """Return what is wrong by the agent that it keeps out; raise `ConfigError` for what concerns all."""
    out: dict[str, tuple[Problem, ...]] = {}
    for problem in problems:
        owner = owner_of(problem.file)
        out[owner] = (*out.get(owner, ()), problem)
    if of_all := out.get(""):
        raise ConfigError(str(of_all[0]), problems=of_all)
    return out


def find_files(base: Path, patterns: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the files that the patterns name, sorted, and what is wrong with others that they name.

    `__init__.py` and names that begin with _ are none. Raises `ConfigError` for a pattern that leads out.
    """
    found: set[str] = set()
    for pattern in patterns:
        parts = pattern.split("/")
        if pattern.startswith("/") or ".." in parts or "\\" in pattern or not pattern.endswith(".py"):
            hint = 'write "tools/*.py", or "agents/*/tools/*.py"'
            raise ConfigError(
                f'tool_files: "{pattern}" names no Python files in here', where=ORG_FILE, hint=hint
            )
        try:
            found |= _matches(base, pattern)
        except OSError as error:
            raise unreadable(pattern, error) from error
    files = sorted(file for file in found if not Path(file).name.startswith("_"))
    wrong = [problem for file in files for problem in _wrong_with(base, file)]
    refused = {problem.file for problem in wrong}
    return [file for file in files if file not in refused], wrong


def empty_patterns(base: Path, patterns: Sequence[str]) -> list[Problem]:
    """Return a warning for each pattern that names no file of tools here. Raises as `find_files`."""
    hint = "mend it or take it out, or `lemming tools new NAME` writes a file"
    return [
        Problem(
            f'"{pattern}" in tool_files matches no file',
            ORG_FILE,
            pointer=f"/tool_files/{index}",
            hint=hint,
            severity="warning",
        )
        for index, pattern in enumerate(patterns)
        if not any(find_files(base, [pattern]))
    ]


def _wrong_with(base: Path, file: str) -> Iterator[Problem]:
    if not Path(file).stem.isidentifier():
        hint = "letters, digits and _ only"
        yield Problem("a file of tools is a Python module; rename it", file, hint=hint)
    elif real_path(f"{base / file}") != f"{real_path(f'{base}')}/{file}":
        yield Problem("symbolic link refused: tools are loaded from real files", file)


@looking
def _matches(base: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(base)) for path in base.glob(pattern) if is_file(str(path))}


def with_neighbours(base: Path, files: Sequence[str]) -> list[str]:
    """Return the files, and those beside them, which they may import."""
    folders = {str(Path(file).parent) for file in files}
    beside = (f"{folder}/{name}" for folder in folders for name in fs.list_names(f"{base}/{folder}"))
    return sorted({*files, *(file for file in beside if file.endswith(".py"))})
