"""Find the tool files of an organisation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.problems import make_warning
from lemming.kernel.files import fs
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.disk_errors import raises_disk_error
from lemming.kernel.files.json_documents import unreadable_error
from lemming.kernel.files.stat_cache import is_file


def get_owner(file: str) -> str:
    """Return the only agent with access to a file's tools, or an empty text for all agents.

    >>> get_owner("agents/ada/tools/git.py"), get_owner("tools/git.py")
    ('ada', '')
    """
    first_folder, _, inner_path = file.partition("/")
    return inner_path.partition("/")[0] if first_folder == "agents" and "/" in inner_path else ""


def group_by_owner(problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
    """Return problems by the excluded agent. Raise `ConfigError` for problems affecting all agents."""
    excluded: dict[str, tuple[Problem, ...]] = {}
    for problem in problems:
        owner = get_owner(problem.file)
        excluded[owner] = (*excluded.get(owner, ()), problem)
    if shared_problems := excluded.get(""):
        raise ConfigError(str(shared_problems[0]), problems=shared_problems)
    return excluded


def find_files(base: Path, patterns: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the files matching the patterns, sorted, and the problems of rejected files.

    `__init__.py` and names beginning with _ are skipped. Raises `ConfigError` for a pattern outside the
    organisation.
    """
    matches: set[str] = set()
    for pattern in patterns:
        parts = pattern.split("/")
        if pattern.startswith("/") or ".." in parts or "\\" in pattern or not pattern.endswith(".py"):
            hint = 'write "tools/*.py", or "agents/*/tools/*.py"'
            raise ConfigError(
                f'tool_files: a pattern must name Python files in the organisation, got "{pattern}"',
                where=paths.ORG_FILE,
                hint=hint,
            )
        try:
            matches |= _find_files(base, pattern)
        except OSError as error:
            raise unreadable_error(pattern, error) from error
    files = sorted(file for file in matches if not Path(file).name.startswith("_"))
    problems = [problem for file in files for problem in _validate_file(base, file)]
    rejected = {problem.file for problem in problems}
    return [file for file in files if file not in rejected], problems


def list_tool_files(base: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files matching the patterns, with the modules beside them. Raises like `find_files`."""
    return add_neighbour_modules(base, find_files(base, patterns)[0]) if patterns else []


def find_empty_patterns(base: Path, patterns: Sequence[str]) -> list[Problem]:
    """Return a warning for each pattern without a matching file. Raises like `find_files`."""
    hint = "correct or remove it, or create a file with `lemming tools new NAME`"
    return [
        make_warning(f'"{pattern}" in tool_files matches no files', f"/tool_files/{index}", hint, paths.ORG_FILE)
        for index, pattern in enumerate(patterns)
        if not any(find_files(base, [pattern]))
    ]


def _validate_file(base: Path, file: str) -> Iterator[Problem]:
    if not Path(file).stem.isidentifier():
        hint = "rename it; use letters, digits and _ only"
        yield Problem("a tool file must be named like a Python module", file, hint=hint)
    elif real_path(f"{base / file}") != f"{real_path(f'{base}')}/{file}":
        yield Problem("symbolic link refused: tools are loaded from real files", file)


@raises_disk_error
def _find_files(base: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(base)) for path in base.glob(pattern) if is_file(str(path))}


def add_neighbour_modules(base: Path, files: Sequence[str]) -> list[str]:
    """Return the files together with their neighbours, which the files may import."""
    folders = {str(Path(file).parent) for file in files}
    neighbours = (f"{folder}/{name}" for folder in folders for name in fs.list_names(f"{base}/{folder}"))
    return sorted({*files, *(file for file in neighbours if file.endswith(".py"))})
