"""The view of an agent: resume, memory, workspace, turns, next prompt. And the view of the settings."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from lemming.kernel.access.agent_files import scan_folder
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import list_agent_folders, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, ToolError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.libraries.agent_folders import read_allowed_text
from lemming.libraries.wording import shorten_line
from lemming.queries.credit_accounts import load_account
from lemming.queries.editable_files import SETTINGS_FILES, load_editable_file
from lemming.queries.sentences import summarize_report
from lemming.queries.tick_preview import load_inspection_settings, preview_tick
from lemming.queries.views.agents_view import build_agent_row
from lemming.read_model.tick_queries import load_turn_report

MAX_FILES_SHOWN, MAX_FILES_COUNTED = 300, 5000
MAX_VALUE_CHARS = 4000
MAX_TURNS_SHOWN = 40
TAIL_BYTES = 16 << 10


def build_agent_view(org: OrgPath, *, name: str, file: str = "", prompt: int = 0) -> dict[str, Any]:
    """Return the view of an agent, including the text of a workspace `file` if a path is passed.

    With `prompt`, also return the prompt its model would get now. Raises `UsageError` for an unknown agent.
    """
    org = Organisation.from_path(org)
    folders = list_agent_folders(org)
    if name not in folders or not paths.AGENT_NAME.match(name):
        raise UsageError(f'agent "{name[:80]}" does not exist', hint=suggest_agent(name[:80], folders))
    agents, list_workers = survey_agents(org).agents, find_fact("workers.running")
    agent = agents.get(name)
    workers = [worker.as_json() for worker in list_workers(org) if worker.agent == name] if list_workers else []
    return {
        "name": name,
        "title": agent.title if agent else "",
        "is_broken": agent is None,
        "takes_turns": agent is not None and load_config(org).has_model_turns(agent),
        "now": build_agent_row(org, name),
        "resume": load_editable_file(org, paths.resume_file(name)),
        "workers": workers,
        "money": _build_credits_section(org, name),
        "memory": _build_memory_section(org, name),
        "workspace": _build_workspace_section(org, name),
        "file": {"path": file, "text": load_workspace_text(org, name, file)} if file else None,
        "turns": [*_iter_recent_turns(org, name)],
        "readers": {
            "reads": agent.permissions.read_outboxes if agent else [],
            "read_by": [other for other, reader in agents.items() if reader.may_read(name)],
            "asks": sorted(agent.extensions["team"].all_names) if agent and "team" in agent.extensions else [],
        },
        "prompt": _build_prompt_section(org, name) if prompt else None,
    }


def _build_credits_section(org: Organisation, name: str) -> dict[str, Any]:
    try:
        account = load_account(org, name, load_config(org), survey_agents(org).agents.get(name)).as_json()
    except LemmingError as error:
        return {**dict.fromkeys(_AMOUNTS), "credits": 0.0, "used_up": 0.0, "turns": 0, "wrong": str(error)}
    return {**{key: account[key] for key in _AMOUNTS}, "credits": account["spent"], "wrong": ""}


_AMOUNTS = ("used_up", "max_credits", "soft_cap", "cost_usd", "turns")


def _build_memory_section(org: Organisation, name: str) -> dict[str, Any]:
    memories = load_memories(org, name)
    values = [
        {
            "key": key,
            "text": (text := value if isinstance(value, str) else dump_compact(value).decode())[:MAX_VALUE_CHARS],
            "chars": len(text),
            "trust": memories.trust.get(key, ""),
        }
        for key, value in memories.values.items()
    ]
    return {"values": values, "problems": [str(problem) for problem in memories.problems]}


def _build_workspace_section(org: Organisation, name: str) -> dict[str, Any]:
    """Return the workspace files, folder by folder; links are listed and not followed."""
    marks, problem = dict[str, str](), ""
    try:
        for path, mark in islice(_walk_workspace(org, name), MAX_FILES_COUNTED):
            marks[path] = mark
    except ToolError as error:
        problem = error.message
    files = [
        {"path": path, "is_link": mark == "@", "bytes": _file_size(org, name, path)}
        for path, mark in islice(marks.items(), MAX_FILES_SHOWN)
    ]
    return {"files": files, "left_out": len(marks) - len(files), "wrong": problem}


def _walk_workspace(org: Organisation, name: str) -> Iterator[tuple[str, str]]:
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        folder_path = resolve_path(_make_reader(name), org.base, folder or ".", "read", caller="workspace")
        for file, mark in sorted(scan_folder(folder_path, {}).items()):
            path = f"{folder}/{file}" if folder else file
            if mark == "/" and file.isprintable():
                folders.append(path)
            elif file.isprintable():  # no request can select another name
                yield path, mark


def _make_reader(name: str) -> Agent:
    """Return a placeholder agent that may read an agent's workspace and nothing else."""
    return Agent(name=name, instructions="-")


def _file_size(org: Organisation, name: str, path: str) -> int | None:
    try:
        return os.lstat(f"{org.base}/{paths.workspace_folder(name)}/{path}").st_size
    except OSError:
        return None


def load_workspace_text(org: Organisation, name: str, file: str) -> str:
    """Return the text of a workspace file; raise `UsageError` for a path outside the workspace or without text."""
    try:
        return read_allowed_text(_make_reader(name), org.base, file, caller="workspace")
    except ToolError as error:
        raise UsageError(error.message) from error


def _iter_recent_turns(org: Organisation, name: str) -> Iterator[dict[str, Any]]:
    """Yield the newest turns from the ledger, newest first; the cost of a turn is the growth of the totals.

    `reason` and `did`, the turn's effects in words, are empty without a journal.
    """
    try:
        raw = fs.read_tail(f"{org.base}/{paths.ledger_file(name)}", TAIL_BYTES, MAX_TURNS_SHOWN + 1)
    except OSError:
        return
    states = [*filter(None, map(_parse_ledger_line, raw.splitlines()[-MAX_TURNS_SHOWN - 1 :]))]
    for previous, state in reversed([*zip([None, *states], states, strict=False)]):
        if previous is None and len(states) > MAX_TURNS_SHOWN:
            return
        earlier, report = previous or AgentState(), load_turn_report(org, state.tick, name)
        did = (shorten_line(summarize_report(report), 200) or "wrote nothing") if report else ""
        yield {
            "tick": state.tick,
            "status": state.status,
            "end": state.end,
            "serving": state.serving,
            "credits": round(state.credits - earlier.credits, 6),
            "cost_usd": None if state.cost_usd is None else state.cost_usd - (earlier.cost_usd or 0.0),
            "tokens": state.input_tokens + state.output_tokens - earlier.input_tokens - earlier.output_tokens,
            "reason": str(report.get("reason") or ""),
            "did": did,
        }


def _parse_ledger_line(line: bytes) -> AgentState | None:
    try:
        raw_state = parse(line)
        return AgentState.from_json(raw_state) if isinstance(raw_state, dict) else None
    except (JsonProblem, ValueError):  # a torn line, or one cut in the middle
        return None


def _build_prompt_section(org: Organisation, name: str) -> dict[str, Any]:
    """Return the prompt the agent's model would get now, or the reason there is none."""
    try:
        preview = preview_tick(org, load_inspection_settings(org))
        agents = preview.survey.agents
        if name not in agents or not preview.tick_context.config.has_model_turns(agents[name]):
            return {"tick": preview.tick, "messages": [], "why_not": "no model is ever asked for it"}
        inputs = preview.build_prompt(name).inputs
    except LemmingError as error:
        return {"tick": None, "messages": [], "why_not": str(error)}
    return {
        "tick": preview.tick,
        "model": f"{inputs.model.provider} {inputs.model.model}".strip(),
        "messages": inputs.first_messages,
        "waits_for": preview.find_predecessors(name),
        "why_not": "",
    }


def build_settings_view(org: OrgPath, *, file: str = "org") -> dict[str, Any]:
    """Return a settings file, `org` or `models`, with its problems."""
    if file not in SETTINGS_FILES:
        raise UsageError(f'settings file "{file[:80]}" does not exist', hint=did_you_mean(file[:80], [*SETTINGS_FILES]))
    return load_editable_file(org, SETTINGS_FILES[file])
