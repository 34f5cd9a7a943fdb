"""The line of a document at which something stands that is wrong: `idea.yaml:7: agents.ada`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lemming.capabilities.skills.front_matter import find_yaml_line
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import escaped, locate

_QUOTED = re.compile(r'"([^"]+)"')


@contextmanager
def locate_by_line(raw: bytes, file: str) -> Iterator[None]:
    """Add the line to the place of what is raised about a document within the block."""
    try:
        yield
    except (ConfigError, UsageError) as error:
        named, _, path = error.where.partition(": ")
        if named == file and path and (line := _find_line(raw, file, path, error.message)):
            before, error.where = error.where, f"{file}:{line}: {path}"
            if isinstance(error, ConfigError):
                problems = (
                    replace(it, file=error.where) if it.file == before else it for it in error.problems
                )
                error.problems = tuple(problems)
        raise


def _find_line(raw: bytes, file: str, path: str, message: str) -> int:
    """Return the line of a path, or of a key below it that the message quotes; 0 if there is none."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    parts = path.split(".", 1)  # a file's name has dots, an agent's has none
    parts = parts if parts[0] == "files" else path.split(".")
    keys = _QUOTED.findall(message)[:1]
    ways = ([*parts, *keys], parts)
    if file.endswith(".json"):
        return next(
            (line for way in ways if (line := locate(text, "".join(f"/{escaped(it)}" for it in way))[0])), 0
        )
    if file.endswith(".toml"):
        return 0
    return next((line for way in ways if (line := find_yaml_line(text, way))), 0)
