"""The table of harnesses: one JSON file each in this folder. A command line is built from a file and a run's values.

The keys of a file are the fields of `Harness`, except for `name`, which is the file's. A text of `home_files` may be
written as an object (JSON) or as a list of lines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from lemming.capabilities.workers.harnesses.harness_types import Harness, ModelApi, PermissionMode
from lemming.ext import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse

FOLDER = Path(__file__).parent
VERSION_TIMEOUT_S = 10
_LISTS = {"program", "arguments", "resume", "version"}
_TABLES = {"limits", "permissions", "environment", "home_files", "apis"}
_CHOICES = {"api": get_args(ModelApi), "stop_signal": ("INT", "TERM")}


def list_harnesses(base: Path | None = None) -> list[str]:
    """Return the names of all harnesses, sorted."""
    return sorted(path.stem for path in (base or FOLDER).glob("*.json"))


def load_harness(name: str, base: Path | None = None) -> Harness:
    """Return a harness by name, from a folder of JSON files. Raise `ConfigError` for an unknown name or a bad file."""
    names = list_harnesses(base)
    if name not in names:
        raise ConfigError(f"harness must be one of {', '.join(names)}, got {name!r}", hint=did_you_mean(name, names))
    path = (base or FOLDER) / f"{name}.json"
    try:
        plain = parse(path.read_bytes())
    except JsonProblem as problem:
        raise ConfigError(str(problem), where=str(path)) from problem
    if not isinstance(plain, dict):
        raise ConfigError(f"a harness must be a JSON object, got {type(plain).__name__}", where=str(path))
    return Harness(name=name, **_parse_keys(plain, str(path)))


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
    adapter = _find_program_harness(Path(command[0]).name) if harness.output == "acp" else None
    if adapter is None:
        return replace(harness, program=tuple(command))
    return replace(
        adapter,
        name=harness.name,
        program=tuple(command),
        arguments=(),
        resume=(),
        limits={},
        permissions={},
        output="acp",
    )


def with_api(harness: Harness, api: str) -> Harness:
    """Return a harness that speaks another of its APIs, as the option `api` names it."""
    if api == harness.api:
        return harness
    if api not in harness.apis:
        choices = ", ".join([harness.api, *harness.apis])
        raise ConfigError(f"options.api of {harness.name} must be one of {choices}, got {api!r}")
    return replace(harness, **_parse_keys({**harness.apis[api], "api": api}, f"{harness.name}.json"))


def can_ask(harness: Harness) -> bool:
    """Return True if a harness asks before it uses a tool and waits for the answer."""
    return harness.output == "acp" or "ask" in harness.permissions


def build_command(
    harness: Harness,
    *,
    model: str,
    session: str = "",
    base_url: str = "",
    key_variable: str = "",
    max_cost_usd: float | None = None,
    max_turns: int | None = None,
    permissions: PermissionMode = "bypass",
) -> list[str]:
    """Return the argument list of a run. Text of a model or of a request is never in it.

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
        "{limits}": tuple(
            part for name, parts in harness.limits.items() if limits.get(name) is not None for part in parts
        ),
    }
    values = _list_values(model, session, base_url, key_variable or harness.key_variable)
    values |= {f"{{{name}}}": str(value) for name, value in limits.items() if value is not None}
    arguments = [part for argument in harness.arguments for part in groups.get(argument, (argument,))]
    return [*harness.program, *(_fill(argument, values) for argument in arguments)]


def build_environment(
    harness: Harness, *, model: str, session: str = "", base_url: str = "", key_variable: str = ""
) -> dict[str, str]:
    """Return the variables of a run, without HOME, PATH and the key."""
    values = _list_values(model, session, base_url, key_variable or harness.key_variable)
    return {name: _fill(text, values) for name, text in harness.environment.items()}


def build_home_files(
    harness: Harness, *, model: str, session: str = "", base_url: str = "", key_variable: str = ""
) -> dict[str, str]:
    """Return the files of HOME that a run needs, by path relative to HOME."""
    values = _list_values(model, session, base_url, key_variable or harness.key_variable)
    # Both JSON and TOML put values between double quotes: a model's name may not end them.
    quoted = {name: json.dumps(value)[1:-1] for name, value in values.items()}
    return {path: _fill(text, quoted) for path, text in harness.home_files.items()}


def find_program(harness: Harness) -> Path | None:
    """Return the path of a harness's program, or None if it is not installed. Links are kept."""
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
    return _read_package_version(real) or _ask_version(str(path), harness.version, real.stat().st_mtime_ns)


@cache
def _ask_version(path: str, arguments: tuple[str, ...], _mtime_ns: int) -> str:
    if not arguments:
        return ""
    # With the user's HOME some programs would write there, or look for updates of their plugins.
    with tempfile.TemporaryDirectory(prefix="lemming-version-") as home:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LC_ALL": "C.UTF-8"}
        try:
            run = subprocess.run(
                [path, *arguments], capture_output=True, stdin=subprocess.DEVNULL, env=environment, cwd=home,
                timeout=VERSION_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
    output = (run.stdout.strip() or run.stderr.strip()).decode("utf-8", "replace")
    parts = output.splitlines()[0].split() if output and run.returncode == 0 else []
    return next((part.removeprefix("v") for part in parts if part.removeprefix("v")[:1].isdigit()), "")


def _read_package_version(program: Path) -> str:
    for folder in list(program.parents)[:3] if "node_modules" in program.parts else ():
        try:
            package = parse((folder / "package.json").read_bytes())
        except (OSError, JsonProblem):
            continue
        return str(package.get("version", "")) if isinstance(package, dict) else ""
    return ""


def _find_program_harness(program: str) -> Harness | None:
    harnesses = (load_harness(name) for name in list_harnesses())
    return next((harness for harness in harnesses if harness.program and harness.program[0] == program), None)


def _list_values(model: str, session: str, base_url: str, key_variable: str) -> dict[str, str]:
    return {"{model}": model, "{session}": session, "{base_url}": base_url, "{key_variable}": key_variable}


def _fill(text: str, values: Mapping[str, str]) -> str:
    # Not str.format: the texts hold braces of JSON and TOML.
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _parse_keys(plain: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of a harness from the keys of a file. Raise `ConfigError` for a key or a type that is wrong."""
    names = {field.name for field in fields(Harness)} - {"name"}
    for key in plain:
        if key not in names:
            raise ConfigError(f"unknown key {key!r}", where=where, hint=did_you_mean(key, names))
    return {key: _parse_value(key, value, f"{where} /{key}") for key, value in plain.items()}


def _parse_value(key: str, value: Any, where: str) -> Any:
    if key in _LISTS:
        return _parse_words(value, where)
    if key in _TABLES:
        if not isinstance(value, dict):
            raise ConfigError(f"{key} must be an object, got {type(value).__name__}", where=where)
        if key in ("limits", "permissions"):
            return {name: _parse_words(parts, f"{where}/{name}") for name, parts in value.items()}
        if key == "home_files":
            return {path: _to_text(text) for path, text in value.items()}
        return value
    if not isinstance(value, str) or value not in _CHOICES.get(key, (value,)):
        expected = ", ".join(_CHOICES.get(key, ())) or "a text"
        raise ConfigError(f"{key} must be {expected}, got {value!r}", where=where)
    return value


def _parse_words(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ConfigError(f"value must be a list of texts, got {value!r}", where=where)
    return tuple(value)


def _to_text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"{line}\n" for line in value)
    return value if isinstance(value, str) else json.dumps(value)
