"""The table of harnesses, one JSON file each with the fields of `Harness`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import Harness, PermissionMode
from lemming.ext import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse
from lemming.kernel.files.json_documents import parse_document

FOLDER = Path(__file__).parent
VERSION_TIMEOUT_S = 10


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A run of a harness: command, variables besides HOME, PATH and the key, and files of HOME by path."""

    command: list[str]
    environment: dict[str, str]
    home_files: dict[str, str]


def list_harnesses(base: Path = FOLDER) -> list[str]:
    """Return the names of all harnesses, sorted."""
    return sorted(path.stem for path in base.glob("*.json"))


def load_harness(name: str, base: Path = FOLDER) -> Harness:
    """Return a harness by name, from a folder of JSON files. Raise `ConfigError` for an unknown name or a bad file."""
    names = list_harnesses(base)
    if name not in names:
        raise ConfigError(f"harness must be one of {', '.join(names)}, got {name!r}", hint=did_you_mean(name, names))
    path = base / f"{name}.json"
    return replace(parse_document(path.read_bytes(), str(path), Harness, unknown_key_policy="none").value, name=name)


def with_command(harness: Harness, command: list[str]) -> Harness:
    """Return a harness that runs another program, as the option `command` names it.

    A known program that speaks ACP, such as `gemini --acp`, brings its environment and its API along.

    Raises: `ConfigError` for an empty command, and for a program by a relative path: the run has its own folder.
    """
    if not command or not command[0]:
        raise ConfigError(f"options.command of {harness.name} must be a program and its arguments, got {command!r}")
    if "/" in command[0] and not Path(command[0]).is_absolute():
        hint = "write the absolute path, or put the program's folder into PATH"
        raise ConfigError(f"program must be a name or an absolute path, got {command[0]!r}", hint=hint)
    program, name = tuple(command), Path(command[0]).name
    if harness.output == "acp":
        for adapter in map(load_harness, list_harnesses()):
            if adapter.program[:1] == (name,):
                adapter = replace(adapter, name=harness.name, arguments=(), resume=(), limits={}, permissions={})
                return replace(adapter, program=program, output="acp")
    return replace(harness, program=program)


def can_ask(harness: Harness) -> bool:
    """Return True if a harness asks before it uses a tool and waits for the answer."""
    return harness.output == "acp" or "ask" in harness.permissions


def build_invocation(
    harness: Harness,
    *,
    model: str,
    session: str = "",
    base_url: str = "",
    max_cost_usd: float | None = None,
    max_turns: int | None = None,
    permissions: PermissionMode = "bypass",
) -> Invocation:
    """Return command, variables and files of a run. Text of a model or of a request is in none of them.

    `session`: the session to resume, or an empty text. A limit that the harness has no option for is left to the engine.

    Raises: `ConfigError` if the harness cannot resume a session, or cannot ask.
    """
    if session and not harness.resume and harness.output != "acp":
        raise ConfigError(f"{harness.name} cannot resume a session, got session {session!r}")
    if permissions == "ask" and not can_ask(harness):
        raise ConfigError(
            f'option permissions of {harness.name} must be "bypass", got "ask"',
            hint="this harness never asks while it runs; gates see its patch",
        )
    limits = {"max_cost_usd": max_cost_usd, "max_turns": max_turns}
    groups = {
        "{resume}": harness.resume if session else (),
        "{permissions}": harness.permissions.get(permissions, ()),
        "{limits}": [part for name, parts in harness.limits.items() if limits[name] is not None for part in parts],
    }
    arguments = [part for argument in harness.arguments for part in groups.get(argument, (argument,))]
    values = {"model": model, "session": session, "base_url": base_url, "key_variable": harness.key_variable}
    values |= {name: str(value) for name, value in limits.items()}
    # Both JSON and TOML put values between double quotes: a model's name may not end them.
    quoted = {name: json.dumps(value)[1:-1] for name, value in values.items()}
    return Invocation(
        command=[*harness.program, *(_fill(argument, values) for argument in arguments)],
        environment={name: _fill(text, values) for name, text in harness.environment.items()},
        home_files={path: _fill(_to_text(content), quoted) for path, content in harness.home_files.items()},
    )


def _fill(text: str, values: Mapping[str, str]) -> str:
    # Not str.format: the texts hold braces of JSON and TOML.
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _to_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(f"{line}\n" for line in content)
    return content if isinstance(content, str) else json.dumps(content)


def find_program(harness: Harness) -> Path | None:
    """Return the path of a harness's program, or None for a program that is not installed. Links are kept."""
    path = shutil.which(harness.program[0]) if harness.program else None
    return Path(path) if path else None


def read_version(harness: Harness) -> str:
    """Return the version of the installed program, or an empty text if it is unknown.

    A program of npm is looked up in its package, which takes no process. Any other is asked, once for each change of its
    file.
    """
    path = find_program(harness)
    if path is None:
        return ""
    real = path.resolve()
    version = _read_package_version(real) if "node_modules" in real.parts else ""
    if version or not harness.version:
        return version
    return _ask_version(str(path), harness.version, real.stat().st_mtime_ns)


@cache
def _ask_version(path: str, arguments: tuple[str, ...], _mtime_ns: int) -> str:
    # With the user's HOME some programs would write there, or look for updates of their plugins.
    with tempfile.TemporaryDirectory(prefix="lemming-version-") as home:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LC_ALL": "C.UTF-8"}
        try:
            run = subprocess.run(
                [path, *arguments], capture_output=True, stdin=subprocess.DEVNULL, env=environment, cwd=home,
                timeout=VERSION_TIMEOUT_S, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return ""
    parts = (run.stdout.strip() or run.stderr.strip()).decode("utf-8", "replace").partition("\n")[0].split()
    return next((part.removeprefix("v") for part in parts if part.removeprefix("v")[:1].isdigit()), "")


def _read_package_version(program: Path) -> str:
    for folder in list(program.parents)[:3]:
        try:
            package = parse((folder / "package.json").read_bytes())
        except (OSError, JsonProblem):
            continue
        return str(package.get("version", "")) if isinstance(package, dict) else ""
    return ""
