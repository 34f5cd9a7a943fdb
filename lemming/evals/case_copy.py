"""The throw-away copy for a run: the organisation without its evals, with the changes of the case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lemming.evals.stand_in_copy import remove_external_grants
from lemming.git_history.journal_copies import copy_journals
from lemming.journal_tools.fork import SettingOverride, apply_override, fork, require_effect
from lemming.journal_tools.journal_history import open_past
from lemming.journal_tools.verify.state_root import COUNTED_FOLDERS
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import NotAnOrg, UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.org.config import MODELS_FILE, Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import is_channel, is_person
from lemming.queries.case_format import SAME_ORG, Case, case_file

EXCLUDED_FOLDERS = frozenset({paths.EVALS, "logs"})
LIMIT_BYTES = 64 << 20


def resolve_start_folder(base: OrgPath, name: str, case: Case) -> Path:
    """Return a case's start folder. Raises: UsageError outside the organisation; NotAnOrg without agents."""
    root = Path(base).resolve()
    if case.start == SAME_ORG:
        return root
    folder = (root / Path(case_file(name)).parent / case.start).resolve()
    hint = 'name a folder next to the case, such as "fixture"; without "from" it is this organisation'
    if not folder.is_relative_to(root):
        raise UsageError(f'"{case.start}" must be inside the organisation', where=case_file(name), hint=hint)
    if not (folder / "agents").is_dir():
        raise NotAnOrg(f'"{case.start}" must be an organisation', where=case_file(name), hint=hint)
    return folder


def make_copy(
    base: OrgPath, name: str, case: Case, folder: Path, *, settings: Iterable[SettingOverride] = (), model: str = ""
) -> None:
    """Copy the start organisation of a case into an empty folder, with the changes of the case and the arm.

    `model`: model key for all agents with a model. The copy grants no write access outside itself. Raises: UsageError
    for a change without effect.
    """
    start = Organisation.from_path(resolve_start_folder(base, name, case))
    at = (
        case.at if case.at or journal_ticks(start) else None
    )  # before the first tick the current state is the start state
    if at is not None:
        past = open_past(start)
        fork(past, past.resolve_state(str(at)), folder, [])
    fs.make_root(folder)
    for relative in _iter_files(start.base):
        if not (folder / relative).exists() and (at is None or not _is_tick_file(relative)):
            fs.write_atomic(folder, relative, fs.read_bytes(start.base / relative, LIMIT_BYTES))
    if at is None and (ticks := journal_ticks(start)):
        copy_journals(start, folder, until=ticks[-1])
    for file, change in case.set.items():
        _apply_change(folder, file, change)
    if model:
        _set_model(folder, model)
    for setting in settings:
        fs.write_atomic(folder, setting.file, apply_override(_load_file(folder, setting.file), setting))
    # Last, because a change or a setting may grant access to an outside folder.
    remove_external_grants(folder)


def _iter_files(start: Path) -> Iterator[str]:
    """Yield the regular files of an organisation, without logs, evals, hidden files and very large files."""
    for folder, inner, files in walk(start):
        parts = Path(folder).relative_to(start).parts
        if not parts:
            inner[:] = [name for name in inner if name not in EXCLUDED_FOLDERS and name[0] != "."]
        elif parts[0] == "agents" and len(parts) == 2:
            inner[:] = [name for name in inner if name != "logs"]
        for file in files:
            is_hidden = file.name.startswith(".") and (not parts or file.name.endswith(".tmp"))
            if not is_hidden and file.is_file(follow_symlinks=False) and file.stat().st_size <= LIMIT_BYTES:
                yield Path(file.path).relative_to(start).as_posix()


def _is_tick_file(relative: str) -> bool:
    """Return True if ticks write the file, so the past version is the right one."""
    return relative.partition("/")[0] in (*COUNTED_FOLDERS, paths.TICK_FILE)


# --- changes ----------------------------------------------------------------------------------


def _apply_change(folder: Path, file: str, change: Any) -> None:
    if isinstance(change, str):
        fs.write_atomic(folder, file, change.encode())
        return
    raw = _load_file(folder, file) if (folder / file).exists() else b"{}"
    pointers = {key: value for key, value in change.items() if key.startswith("/")}
    if merge_keys := {key: value for key, value in change.items() if key not in pointers}:
        try:
            new_raw = dump_pretty(_merge_patch(parse(raw, limit_bytes=LIMIT_BYTES, allow_bom=True), merge_keys))
        except JsonProblem as error:
            raise UsageError(f"{file} must be JSON: {error}", hint="write the whole file as a text") from error
        require_effect(file, raw, new_raw, request="set")
        raw = new_raw
    for pointer, value in pointers.items():
        raw = apply_override(raw, SettingOverride(file, pointer, value))
    fs.write_atomic(folder, file, raw)


def _merge_patch(value: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396) to a value.

    A null in the patch removes the key.

    >>> _merge_patch({"a": {"b": 1}}, {"a": {"b": None}})
    {'a': {}}
    """
    if not isinstance(change, dict):
        return change
    result = dict(value) if isinstance(value, dict) else {}
    for key, new_value in change.items():
        if new_value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_patch(result.get(key), new_value)
    return result


def _load_file(folder: Path, file: str) -> bytes:
    try:
        return fs.read_bytes(folder / file, LIMIT_BYTES)
    except OSError as error:
        hint = "use a path from the organisation's folder"
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error


def _set_model(folder: Path, key: str) -> None:
    org = Organisation.from_path(folder)
    config = load_config(org)
    if key not in config.models:
        hint = did_you_mean(key, [*config.models]) or f"use one of the model keys: {', '.join(config.models)}"
        raise UsageError(f'model key "{key}" does not exist in {MODELS_FILE}', hint=hint)
    for name, agent in survey_agents(org).agents.items():
        if has_model(agent, config):
            file = paths.resume_file(name)
            change = SettingOverride(file, "/model/key", key)
            fs.write_atomic(folder, file, apply_override(_load_file(folder, file), change))


def has_model(agent: Agent, config: Config) -> bool:
    """Return True if the agent calls a model, rather than a person, a channel, a plan or the clock."""
    entry, plugins = config.models.get(agent.model.key), config.org.plugins
    if entry is None or entry.provider in NO_MODELS:
        return False
    return not is_person(entry.provider, plugins) and not is_channel(entry.provider, plugins)
