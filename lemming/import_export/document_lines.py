"""Line numbers of errors in a document: `idea.yaml:7: agents.ada`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import escape_pointer_key, locate
from lemming.libraries.front_matter import find_yaml_line

_QUOTED = re.compile(r'"([^"]+)"')


@contextmanager
def locate_by_line(raw: bytes, file: str) -> Iterator[None]:
    """Add the line number to the location of errors raised about a document within the block."""
    try:
        yield
    except (ConfigError, UsageError) as error:
        error_file, _, path = error.where.partition(": ")
        if error_file == file and path and (line := _find_line(raw, file, path, error.message)):
            old_location, error.where = error.where, f"{file}:{line}: {path}"
            if isinstance(error, ConfigError):
                problems = (
                    replace(problem, file=error.where) if problem.file == old_location else problem
                    for problem in error.problems
                )
                error.problems = tuple(problems)
        raise


def _find_line(raw: bytes, file: str, path: str, message: str) -> int:
    """Return the line of a path, or of a child key quoted in the message, or 0."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    parts = path.split(".", 1)  # a file's name has dots, an agent's has none
    parts = parts if parts[0] == "files" else path.split(".")
    keys = _QUOTED.findall(message)[:1]
    candidate_paths = ([*parts, *keys], parts)
    if file.endswith(".json"):
        return next(
            (
                line
                for candidate in candidate_paths
                if (line := locate(text, "".join(f"/{escape_pointer_key(key)}" for key in candidate))[0])
            ),
            0,
        )
    if file.endswith(".toml"):
        return 0
    return next((line for candidate in candidate_paths if (line := find_yaml_line(text, candidate))), 0)
