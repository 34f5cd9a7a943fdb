"""A copy of an organisation to run without costs and without effects outside the copy.

A stand-in plays the models with the answers in the journals. Calls of tools with effects outside the copy are
removed from the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from lemming.git_history.external_files import list_external_files
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.fast_decoder import to_file_value
from lemming.kernel.journal.journal_file import read_journal, started_journals
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.org.config import MODELS_FILE, ORG_FILE, Config, load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_table import EXECUTORS
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import EngineTool, Tool, iter_shipped_tools
from lemming.testing import say

BILL_FILE = ".lemming/bill.txt"
ANSWERS_FILE = ".lemming/answers.jsonl"
COPIED = ("agents", "config", "shared", paths.TRUST, paths.TICK_FILE)
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
    for relative in [*_walk_files(base), *journals]:
        if _is_plain_file(base / relative):
            fs.write_atomic(target, relative, fs.read_bytes(base / relative, FILE_LIMIT_BYTES))
    remove_external_grants(target)
    _configure_stand_ins(target, kills)
    lines = [
        *_build_script_lines(load_recorded_answers(base), tick, kills),
        {"reply": say("(a stand-in for an answer)")},
    ]
    script = b"".join(dump_compact({**line, "delay_s": ANSWER_S}) + b"\n" for line in lines)
    fs.write_atomic(target, ANSWERS_FILE, script)
    return target


def load_recorded_answers(base: Path) -> Answers:
    """Return the model answers of the last ticks, turn by turn."""
    turns: dict[tuple[str, int], dict[int, str]] = {}
    for tick in started_journals(base, TICKS_REMEMBERED):
        for record in read_journal(base, tick):
            if isinstance(record, ModelReplied):
                turns.setdefault((record.agent, tick), {})[record.call] = _answer_text(record)
    answers: Answers = {}
    for (agent, _), texts in turns.items():
        answers.setdefault(agent, []).append(texts)
    return answers


def _answer_text(record: ModelReplied) -> str:
    """Return a model's text, with the backend's native tool calls in the JSON form of a reply."""
    if not record.calls:
        return record.text
    calls = [{"tool": call["tool"], "args": call["args"]} for call in record.calls]
    return dump_compact({"tool_calls": calls, "notes": record.text}).decode()


def _walk_files(base: Path) -> Iterator[str]:
    for name in COPIED:
        file_paths = [Path(file.path) for _, _, files in walk(base / name) for file in files]
        for path in sorted([base / name, *file_paths]):
            if not path.name.endswith(".tmp"):
                yield path.relative_to(base).as_posix()
    yield from list_external_files(base, survey_agents(base).agents.values())


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= FILE_LIMIT_BYTES


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
    models = {key: _make_substitute(entry, config, options) for key, entry in config.models.items()}
    settings: dict[str, Any] = asdict(config.org)
    del settings["extensions"]
    settings |= {key: to_file_value(value) for key, value in config.org.extensions.items()}
    settings["plugins"] = [*settings["plugins"], "lemming.testing.stand_in_provider"]
    settings["max_attempts"] = settings["max_attempts"] + kills
    # Alert programs must not run for failures in a copy.
    for key in ("history", "on_failure", "on_waiting"):
        settings.pop(key)
    if settings["executor"] in EXECUTORS:  # the workers belong to the original
        settings["executor"] = "threads"
    fs.write_atomic(target, MODELS_FILE, dump_pretty(models))
    fs.write_atomic(target, ORG_FILE, dump_pretty(settings))


def _make_substitute(entry: ModelEntry, config: Config, options: dict[str, Any]) -> dict[str, Any]:
    """Return the stand-in for a model entry. A channel becomes silent: its recipients belong to the original."""
    if is_person(entry.provider, config.org.plugins):
        return asdict(entry)
    if is_channel(entry.provider, config.org.plugins):
        return asdict(ModelEntry(provider="human"))
    return {**asdict(entry), "provider": "stand-in", "options": options, **RESET_LIMITS}


def _build_script_lines(answers: Answers, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield script lines with which each agent repeats the recorded answers, tick after tick."""
    for agent, turns in answers.items():
        for offset in range(count + 2):
            for call, text in turns[offset % len(turns)].items():
                yield {"agent": agent, "tick": first + offset, "step": call, "reply": _strip_external_calls(text)}


def _strip_external_calls(text: str) -> dict[str, Any] | str:
    """Return an answer without calls of tools with effects outside the engine's own writes."""
    try:
        reply = parse_reply(text, kinds=get_args(MessageKind))
    except ContractError:
        return text
    return {
        "outbox_entries": [entry._asdict() for entry in reply.outbox_entries],
        "tool_calls": [
            {"tool": call.tool, "args": call.args}
            for call in reply.tool_calls
            if any(map(_is_contained, iter_shipped_tools([call.tool])))
        ],
        "memory_updates": [{"key": update.key, "value": update.value} for update in reply.memory_updates],
        "notes": reply.notes,
    }


def _is_contained(tool: Tool) -> bool:
    """Return True if the tool only reads files and lets the engine write."""
    return isinstance(tool, EngineTool) and tool.tool_class not in ("send", "execute")
