"""A copy of an organisation that can be run without paying and without touching anything outside it.

Its models are played by a stand-in, with the answers that the journals hold; calls of tools whose effects
would lie outside the copy are taken out of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from lemming.history.outside import outside_files
from lemming.kernel.agents import agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse, pretty
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.fitting import written
from lemming.kernel.journal.file import begun_journals, read_journal
from lemming.kernel.journal.records import ModelReplied
from lemming.kernel.org.config import MODELS_FILE, ORG_FILE, Config, load_config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.shipped import EXECUTORS
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tools import EngineTool, Tool, shipped_tools
from lemming.testing import say

BILL_FILE = ".lemming/bill.txt"
ANSWERS_FILE = ".lemming/answers.jsonl"
COPIED = ("agents", "config", "shared", paths.TRUST, paths.TICK_FILE)
TICKS_REMEMBERED = 200
ANSWER_S = 0.02  # so that some of the kills meet a call in flight
FILE_LIMIT_BYTES = 64 << 20

Answers = dict[str, list[dict[int, str]]]
"""For each agent its recorded turns, oldest first: the model's texts by the number of the call."""


def copy_org(base: Path, copy: Path, *, kills: int) -> Path:
    """Copy an organisation into a folder that is not there yet, and return that folder.

    Logs, links and files over 64 MiB stay behind. No turn of the copy is given up for being interrupted
    `kills` times.
    """
    fs.make_root(copy)
    tick = load_tick(base)
    journals = [paths.journal_file(at) for at in (tick - 1, tick) if at >= 0]
    for relative in [*_files_below(base), *journals]:
        if _is_plain_file(base / relative):
            fs.publish(copy, relative, fs.read_bytes(base / relative, FILE_LIMIT_BYTES))
    keep_within(copy)
    _put_stand_in(copy, kills)
    lines = [*_lines(recorded_answers(base), tick, kills), {"reply": say("(a stand-in for an answer)")}]
    script = b"".join(compact({**line, "delay_s": ANSWER_S}) + b"\n" for line in lines)
    fs.publish(copy, ANSWERS_FILE, script)
    return copy


def recorded_answers(base: Path) -> Answers:
    """Return what the models of the last ticks said, turn by turn."""
    turns: dict[tuple[str, int], dict[int, str]] = {}
    for tick in begun_journals(base, TICKS_REMEMBERED):
        for record in read_journal(base, tick):
            if isinstance(record, ModelReplied):
                turns.setdefault((record.agent, tick), {})[record.call] = _text_of(record)
    answers: Answers = {}
    for (agent, _), texts in turns.items():
        answers.setdefault(agent, []).append(texts)
    return answers


def _text_of(record: ModelReplied) -> str:
    """Return what a model said, with calls of its backend's own as the reply's JSON has them."""
    if not record.calls:
        return record.text
    calls = [{"tool": call["tool"], "args": call["args"]} for call in record.calls]
    return compact({"tool_calls": calls, "notes": record.text}).decode()


def _files_below(base: Path) -> Iterator[str]:
    for name in COPIED:
        below = [Path(file.path) for _, _, files in walk(base / name) for file in files]
        for path in sorted([base / name, *below]):
            if not path.name.endswith(".tmp"):
                yield path.relative_to(base).as_posix()
    yield from outside_files(base, survey_agents(base).agents.values())


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= FILE_LIMIT_BYTES


def keep_within(copy: Path) -> None:
    """Take away every grant to write into a folder outside the copy."""
    for name in agent_folders(copy):
        file = f"agents/{name}/resume.json"
        try:
            plain = parse(fs.read_bytes(copy / file, FILE_LIMIT_BYTES), allow_bom=True)
            granted = plain["permissions"]["file_access"]["allow_write"]
            inside = [folder for folder in granted if not folder.startswith("/")]
        except (OSError, JsonProblem, LookupError, TypeError, AttributeError):
            continue  # not a resume, or none that grants anything
        if inside != granted:
            plain["permissions"]["file_access"]["allow_write"] = inside
            fs.publish(copy, file, pretty(plain))


NOT_KEPT = dict.fromkeys(
    ("max_concurrent", "max_concurrency", "requests_per_minute", "tokens_per_minute", "tools")
)


def _put_stand_in(copy: Path, kills: int) -> None:
    config = load_config(copy)
    options = {"file": ANSWERS_FILE, "bill": str(copy / BILL_FILE)}
    models = {key: _stand_in(entry, config, options) for key, entry in config.models.items()}
    settings: dict[str, Any] = asdict(config.org)
    del settings["further"]
    settings |= {key: written(value) for key, value in config.org.further.items()}
    settings["plugins"] = [*settings["plugins"], "lemming.testing.standin"]
    settings["max_attempts"] = settings["max_attempts"] + kills
    # Programs that people are told by must not be started for what goes wrong in a copy.
    for key in ("history", "on_failure", "on_waiting"):
        settings.pop(key)
    if settings["executor"] in EXECUTORS:  # the workers belong to the original
        settings["executor"] = "threads"
    fs.publish(copy, MODELS_FILE, pretty(models))
    fs.publish(copy, ORG_FILE, pretty(settings))


def _stand_in(entry: ModelEntry, config: Config, options: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in for a model; a channel is silent, as what it reaches belongs to the original."""
    if is_person(entry.provider, config.org.plugins):
        return asdict(entry)
    if is_channel(entry.provider, config.org.plugins):
        return asdict(ModelEntry(provider="human"))
    return {**asdict(entry), "provider": "stand-in", "options": options, **NOT_KEPT}


def _lines(answers: Answers, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Let each agent say again, tick after tick, what it said before."""
    for agent, turns in answers.items():
        for offset in range(count + 2):
            for call, text in turns[offset % len(turns)].items():
                yield {"agent": agent, "tick": first + offset, "step": call, "reply": _harmless(text)}


def _harmless(text: str) -> dict[str, Any] | str:
    """Return an answer without calls of tools whose effects the engine does not write itself."""
    try:
        reply = parse_reply(text, kinds=get_args(MessageKind))
    except ContractError:
        return text
    return {
        "outbox_entries": [entry._asdict() for entry in reply.outbox_entries],
        "tool_calls": [
            {"tool": call.tool, "args": call.args}
            for call in reply.tool_calls
            if any(map(_is_within, shipped_tools([call.tool])))
        ],
        "memory_updates": [{"key": it.key, "value": it.value} for it in reply.memory_updates],
        "notes": reply.notes,
    }


def _is_within(tool: Tool) -> bool:
    """Return whether all that a tool does is read and have the engine write."""
    return isinstance(tool, EngineTool) and tool.tool_class not in ("send", "execute")
