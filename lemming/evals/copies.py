"""The throw-away copy that a case runs in: an organisation without its evals, with the case's changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lemming.evals.copy_org import keep_within
from lemming.facts.cases import HERE, Case, case_file
from lemming.history.journals import copy_journals
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import NotAnOrg, UsageError
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.org.config import MODELS_FILE, Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import is_channel, is_person
from lemming.timeline.fork import Setting, fork, require_effect, with_setting
from lemming.timeline.unkept import past_states
from lemming.timeline.verify.root import FOLDERS

LEFT_OUT = frozenset({paths.EVALS, "logs"})
LIMIT_BYTES = 64 << 20


def start_of(base: OrgPath, name: str, case: Case) -> Path:
    """Return the folder that a case starts from; raise `UsageError` for one outside the organisation."""
    root = Path(base).resolve()
    if case.start == HERE:
        return root
    found = (root / Path(case_file(name)).parent / case.start).resolve()
    hint = 'name a folder beside the case, such as "fixture"; without "from" it is this organisation'
    if not found.is_relative_to(root):
        raise UsageError(f'"{case.start}" is outside of the organisation', where=case_file(name), hint=hint)
    if not (found / "agents").is_dir():
        raise NotAnOrg(f'"{case.start}" is no organisation', where=case_file(name), hint=hint)
    return found


def make_copy(
    base: OrgPath, name: str, case: Case, folder: Path, *, settings: Iterable[Setting] = (), model: str = ""
) -> None:
    """Put a copy of what a case starts from into an empty folder, changed as the case and an arm say.

    `model`: the key that all agents have in the copy for whom a model speaks. No grant of it leads outside
    for writing. Raises `UsageError` for a change that has no effect.
    """
    start = Organisation.at(start_of(base, name, case))
    at = case.at if case.at or journal_ticks(start) else None  # before its first tick it is as it was then
    if at is not None:
        past = past_states(start)
        fork(past, past.state(str(at)), folder, [])
    fs.make_root(folder)
    for relative in _files_of(start.base):
        if not (folder / relative).exists() and (at is None or not _is_of_a_tick(relative)):
            fs.publish(folder, relative, fs.read_bytes(start.base / relative, LIMIT_BYTES))
    if at is None and (ticks := journal_ticks(start)):
        copy_journals(start, folder, until=ticks[-1])
    for file, change in case.set.items():
        _change(folder, file, change)
    if model:
        _give_model(folder, model)
    for setting in settings:
        fs.publish(folder, setting.file, with_setting(_read(folder, setting.file), setting))
    # Last: a change or a setting may grant a folder outside.
    keep_within(folder)


def _files_of(start: Path) -> Iterator[str]:
    """Yield the regular files of an organisation, but for its logs and evals, hidden and very large ones."""
    for folder, inner, files in walk(start):
        below = Path(folder).relative_to(start).parts
        if not below:
            inner[:] = [name for name in inner if name not in LEFT_OUT and name[0] != "."]
        elif below[0] == "agents" and len(below) == 2:
            inner[:] = [name for name in inner if name != "logs"]
        for file in files:
            is_hidden = file.name.startswith(".") and (not below or file.name.endswith(".tmp"))
            if not is_hidden and file.is_file(follow_symlinks=False) and file.stat().st_size <= LIMIT_BYTES:
                yield Path(file.path).relative_to(start).as_posix()


def _is_of_a_tick(relative: str) -> bool:
    """Return whether a file is one of those that are as they were after some tick."""
    return relative.partition("/")[0] in (*FOLDERS, paths.TICK_FILE)


# --- changes ----------------------------------------------------------------------------------


def _change(folder: Path, file: str, change: Any) -> None:
    if isinstance(change, str):
        fs.publish(folder, file, change.encode())
        return
    raw = _read(folder, file) if (folder / file).exists() else b"{}"
    pointers = {key: value for key, value in change.items() if key.startswith("/")}
    if merged := {key: value for key, value in change.items() if key not in pointers}:
        try:
            after = pretty(_merged(parse(raw, limit_bytes=LIMIT_BYTES, allow_bom=True), merged))
        except JsonProblem as error:
            raise UsageError(f"{file} is not JSON: {error}", hint="give the whole file as a text") from error
        require_effect(file, raw, after, said="set")
        raw = after
    for pointer, value in pointers.items():
        raw = with_setting(raw, Setting(file, pointer, value))
    fs.publish(folder, file, raw)


def _merged(value: Any, change: Any) -> Any:
    """Return a JSON value with another merged into it: RFC 7396.

    >>> _merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}})
    {'a': {'c': 2, 'd': 3}}
    """
    if not isinstance(change, dict):
        return change
    merged = dict(value) if isinstance(value, dict) else {}
    for key, new in change.items():
        if new is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), new)
    return merged


def _read(folder: Path, file: str) -> bytes:
    try:
        return fs.read_bytes(folder / file, LIMIT_BYTES)
    except OSError as error:
        hint = "paths are from the organisation's folder"
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error


def _give_model(folder: Path, key: str) -> None:
    org = Organisation.at(folder)
    config = load_config(org)
    if key not in config.models:
        hint = nearest(key, [*config.models]) or f"model keys: {', '.join(config.models)}"
        raise UsageError(f'there is no model key "{key}" in {MODELS_FILE}', hint=hint)
    for name, agent in survey_agents(org).agents.items():
        if has_model(agent, config):
            file = paths.resume_file(name)
            change = Setting(file, "/model/key", key)
            fs.publish(folder, file, with_setting(_read(folder, file), change))


def has_model(agent: Agent, config: Config) -> bool:
    """Return whether a model speaks for an agent: no person, channel, plan or clock."""
    entry, plugins = config.models.get(agent.model.key), config.org.plugins
    if entry is None or entry.provider in NO_MODELS:
        return False
    return not is_person(entry.provider, plugins) and not is_channel(entry.provider, plugins)
