"""Throw-away copies of an organisation: for a run of a case, and with stand-ins for its models.

A case runs in a copy without the evals, with the changes of the case. In a copy with stand-ins recorded answers take
the place of models, so the copy can be killed again and again. No copy may write outside itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from lemming.git_history.recorder import list_external_files
from lemming.git_history.rewind import copy_journals
from lemming.journal_tools.file_history import iter_tracked_files, load_current_file
from lemming.journal_tools.fork import SettingOverride, apply_override, fork, require_effect
from lemming.journal_tools.journal_history import open_past
from lemming.journal_tools.verify.state_root import COUNTED_FOLDERS
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError, NotAnOrg, UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_compact, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.fast_decoder import to_file_value
from lemming.kernel.journal.journal_file import journal_ticks, read_journal
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import NO_MODELS, provided
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import EngineTool, iter_shipped_tools
from lemming.queries.case_format import SAME_ORG, Case, case_file
from lemming.read_model.journal_ticks import started_journals
from lemming.testing import say

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
    # Before the first tick the current state is the start state.
    at = case.at if case.at or journal_ticks(start) else None
    if at is not None:
        past = open_past(start)
        fork(past, past.resolve_state(str(at)), folder, [])
    fs.make_root(folder)
    for relative in _iter_files(start.base):
        # Of a file that ticks write, the past version is the right one.
        is_written_by_ticks = relative.partition("/")[0] in (*COUNTED_FOLDERS, paths.TICK_FILE)
        if not (folder / relative).exists() and (at is None or not is_written_by_ticks):
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
        raise UsageError(f'model key "{key}" does not exist in {paths.MODELS_FILE}', hint=hint)
    for name, agent in survey_agents(org).agents.items():
        entry = config.models.get(agent.model.key)
        if entry and entry.provider not in NO_MODELS and config.has_model_turns(agent):
            file = paths.resume_file(name)
            change = SettingOverride(file, "/model/key", key)
            fs.write_atomic(folder, file, apply_override(_load_file(folder, file), change))


BILL_FILE = ".lemming/bill.txt"
ANSWERS_FILE = ".lemming/answers.jsonl"
TICKS_REMEMBERED = 200
ANSWER_S = 0.02  # long enough that some kills hit a call in flight
FILE_LIMIT_BYTES = 64 << 20

Answers = dict[str, list[dict[int, str]]]
"""For each agent its recorded turns, oldest first: the model's texts by the number of the call."""


def copy_org(base: Path, target: Path, *, kills: int) -> Path:
    """Copy an organisation into a new folder and return the folder.

    Logs, links and files over 64 MiB stay behind. The attempt limit is raised: no turn of the copy is
    abandoned because of `kills` interruptions.
    """
    fs.make_root(target)
    tick = load_tick(base)
    journals = [paths.journal_file(at) for at in (tick - 1, tick) if at >= 0]
    external_files = list_external_files(base, survey_agents(base).agents.values())
    for relative in [*iter_tracked_files(base), paths.TICK_FILE, *external_files, *journals]:
        if (content := load_current_file(base, relative)) is not None:
            fs.write_atomic(target, relative, content)
    remove_external_grants(target)
    _configure_stand_ins(target, kills)
    lines: list[dict[str, Any]] = []  # each agent repeats the recorded answers, tick after tick
    for agent, turns in load_recorded_answers(base).items():
        for offset in range(kills + 2):
            for call, text in turns[offset % len(turns)].items():
                reply = _strip_external_calls(text)
                lines.append({"agent": agent, "tick": tick + offset, "step": call, "reply": reply})
    lines.append({"reply": say("(a stand-in for an answer)")})
    script = b"".join(dump_compact({**line, "delay_s": ANSWER_S}) + b"\n" for line in lines)
    fs.write_atomic(target, ANSWERS_FILE, script)
    return target


def load_recorded_answers(base: Path) -> Answers:
    """Return the model answers of the last ticks, turn by turn."""
    turns: dict[tuple[str, int], dict[int, str]] = {}
    for tick in started_journals(base, TICKS_REMEMBERED):
        for record in read_journal(base, tick):
            if isinstance(record, ModelReplied):
                calls = [{"tool": call["tool"], "args": call["args"]} for call in record.calls]
                # Native tool calls of the backend take the JSON form of a reply.
                text = dump_compact({"tool_calls": calls, "notes": record.text}).decode() if calls else record.text
                turns.setdefault((record.agent, tick), {})[record.call] = text
    answers: Answers = {}
    for (agent, _), texts in turns.items():
        answers.setdefault(agent, []).append(texts)
    return answers


def remove_external_grants(org_folder: Path) -> None:
    """Remove every grant to write into a folder outside the copy."""
    for name in list_agent_folders(org_folder):
        file = f"agents/{name}/resume.json"
        try:
            resume = parse(fs.read_bytes(org_folder / file, FILE_LIMIT_BYTES), allow_bom=True)
            writable = resume["permissions"]["file_access"]["allow_write"]
            inside = [folder for folder in writable if not folder.startswith("/")]
        except (OSError, JsonProblem, LookupError, TypeError, AttributeError):
            continue  # not a resume, or a resume without grants
        if inside != writable:
            resume["permissions"]["file_access"]["allow_write"] = inside
            fs.write_atomic(org_folder, file, dump_pretty(resume))


RESET_LIMITS = dict.fromkeys(("max_concurrent", "max_concurrency", "requests_per_minute", "tokens_per_minute", "tools"))


def _configure_stand_ins(target: Path, kills: int) -> None:
    config = load_config(target)
    options = {"file": ANSWERS_FILE, "bill": str(target / BILL_FILE)}
    models = {}
    for key, entry in config.models.items():
        if is_person(entry.provider, config.org.plugins):
            models[key] = asdict(entry)
        elif is_channel(entry.provider, config.org.plugins):  # silent: its recipients belong to the original
            models[key] = asdict(ModelEntry(provider="human"))
        else:
            models[key] = {**asdict(entry), "provider": "stand-in", "options": options, **RESET_LIMITS}
    settings: dict[str, Any] = asdict(config.org)
    del settings["extensions"]
    settings |= {key: to_file_value(value) for key, value in config.org.extensions.items()}
    settings["plugins"] = [*settings["plugins"], "lemming.testing.stand_in_provider"]
    settings["max_attempts"] = settings["max_attempts"] + kills
    # Alert programs must not run for failures in a copy.
    for key in ("history", "on_failure", "on_waiting"):
        settings.pop(key)
    if settings["executor"] in provided("executors"):  # the workers belong to the original
        settings["executor"] = "threads"
    fs.write_atomic(target, paths.MODELS_FILE, dump_pretty(models))
    fs.write_atomic(target, paths.ORG_FILE, dump_pretty(settings))


def _strip_external_calls(text: str) -> dict[str, Any] | str:
    """Return an answer without calls of tools with effects outside the engine's own writes."""
    try:
        reply = parse_reply(text, kinds=get_args(MessageKind))
    except ContractError:
        return text
    calls = []
    for call in reply.tool_calls:
        for tool in iter_shipped_tools([call.tool]):  # which only reads files and lets the engine write
            if isinstance(tool, EngineTool) and tool.tool_class not in ("send", "execute"):
                calls.append({"tool": call.tool, "args": call.args})
    return {
        "outbox_entries": [entry._asdict() for entry in reply.outbox_entries],
        "tool_calls": calls,
        "memory_updates": [{"key": update.key, "value": update.value} for update in reply.memory_updates],
        "notes": reply.notes,
    }
