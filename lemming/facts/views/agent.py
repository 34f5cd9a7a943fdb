"""One agent: its resume as it stands in the file, its memory, its workspace, its turns, its next prompt. And
the settings as they stand in theirs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from lemming.facts.accounts import account_by_ledger
from lemming.facts.preview import preview_tick, settings_to_look_by
from lemming.facts.typed_text import SETTINGS, as_it_stands
from lemming.facts.views.agents import now_of
from lemming.facts.views.glances import EndsInWords
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import read_allowed_text, scan_folder
from lemming.kernel.agents import agent_folders, nearest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, ToolError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, nearest, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.memory import read_memories
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.firing_plan import takes_turns

FILES_SHOWN, FILES_COUNTED = 300, 5000
VALUE_SHOWN_CHARS = 4000
TURNS_SHOWN = 40
TAIL_BYTES = 16 << 10


def agent(org: OrgPath, *, name: str, file: str = "", prompt: int = 0) -> dict[str, Any]:
    """Return what there is of an agent, with the text of one `file` of its workspace if that is named.

    With `prompt`, also what its model would be sent now. Raises `UsageError` for a name that is no agent's.
    """
    org = Organisation.at(org)
    folders = agent_folders(org)
    if name not in folders or not paths.AGENT_NAME.match(name):
        raise UsageError(f'there is no agent "{name[:80]}"', hint=nearest_agent(name[:80], folders))
    found = survey_agents(org).agents.get(name)
    return {
        "name": name,
        "title": found.title if found else "",
        "is_broken": found is None,
        "takes_turns": found is not None and takes_turns(found, load_config(org)),
        "now": now_of(org, name),
        "resume": as_it_stands(org, paths.resume_file(name)),
        "money": _money(org, name),
        "memory": _memory(org, name),
        "workspace": _workspace(org, name),
        "file": {"path": file, "text": workspace_text(org, name, file)} if file else None,
        "turns": [{**turn, **org.own(EndsInWords).of(turn["tick"], name)} for turn in _turns(org, name)],
        "readers": _readers(org, name),
        "prompt": _prompt(org, name) if prompt else None,
    }


def _money(org: Organisation, name: str) -> dict[str, Any]:
    try:
        account = account_by_ledger(org, survey_agents(org), load_config(org), name).as_json()
    except LemmingError as error:
        return {**dict.fromkeys(_AMOUNTS), "credits": 0.0, "used_up": 0.0, "turns": 0, "wrong": str(error)}
    return {**{key: account[key] for key in _AMOUNTS}, "credits": account["spent"], "wrong": ""}


_AMOUNTS = ("used_up", "max_credits", "soft_cap", "cost_usd", "turns")


def _memory(org: Organisation, name: str) -> dict[str, Any]:
    memories = read_memories(org, name)
    values = [
        {
            "key": key,
            "text": (text := value if isinstance(value, str) else compact(value).decode())[
                :VALUE_SHOWN_CHARS
            ],
            "chars": len(text),
            "trust": memories.trust.get(key, ""),
        }
        for key, value in memories.values.items()
    ]
    return {"values": values, "problems": [str(problem) for problem in memories.problems]}


# --- the workspace ---------------------------------------------------------------------------------------


def _workspace(org: Organisation, name: str) -> dict[str, Any]:
    """Return the files of the workspace, folder by folder; links are named and not followed."""
    shown, left = list[dict[str, Any]](), 0
    try:
        for path, mark in islice(_below(org, name), FILES_COUNTED):
            if len(shown) < FILES_SHOWN:
                shown.append({"path": path, "is_link": mark == "@", "bytes": _size(org, name, path)})
            else:
                left += 1
    except ToolError as error:
        return {"files": shown, "left_out": left, "wrong": error.message}
    return {"files": shown, "left_out": left, "wrong": ""}


def _below(org: Organisation, name: str) -> Iterator[tuple[str, str]]:
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        place = resolve(_reader(name), org.base, folder or ".", "read", caller="workspace")
        for file, mark in sorted(scan_folder(place, {}).items()):
            path = f"{folder}/{file}" if folder else file
            if not file.isprintable():  # nobody can ask for it by this name
                continue
            if mark == "/":
                folders.append(path)
            else:
                yield path, mark


def _reader(name: str) -> Agent:
    """Return somebody who may read an agent's workspace, and nothing else."""
    return Agent(name=name, instructions="-")


def _size(org: Organisation, name: str, path: str) -> int | None:
    try:
        return os.lstat(f"{org.base}/{paths.workspace_folder(name)}/{path}").st_size
    except OSError:
        return None


def workspace_text(org: Organisation, name: str, file: str) -> str:
    """Return the text of a file; raise `UsageError` for what is none, or is not below the workspace."""
    try:
        return read_allowed_text(_reader(name), org.base, file, caller="workspace")
    except ToolError as error:
        raise UsageError(error.message) from error


# --- turns -------------------------------------------------------------------------------------------------


def _turns(org: Organisation, name: str) -> Iterator[dict[str, Any]]:
    """Yield the newest turns, newest first, by the ledger: what each cost is what its totals grew by."""
    try:
        raw = fs.read_tail(f"{org.base}/{paths.ledger_file(name)}", TAIL_BYTES, TURNS_SHOWN + 1)
    except OSError:
        return
    states = [*filter(None, map(_state, raw.splitlines()[-TURNS_SHOWN - 1 :]))]
    for before, state in reversed([*zip([None, *states], states, strict=False)]):
        if before is None and len(states) > TURNS_SHOWN:
            return
        earlier = before or AgentState()
        yield {
            "tick": state.tick,
            "status": state.status,
            "end": state.end,
            "serving": state.serving,
            "credits": round(state.credits - earlier.credits, 6),
            "cost_usd": None if state.cost_usd is None else state.cost_usd - (earlier.cost_usd or 0.0),
            "tokens": state.input_tokens + state.output_tokens - earlier.input_tokens - earlier.output_tokens,
        }


def _state(line: bytes) -> AgentState | None:
    try:
        plain = parse(line)
        return AgentState.from_json(plain) if isinstance(plain, dict) else None
    except (JsonProblem, ValueError):  # a torn line, or one cut in the middle
        return None


def _readers(org: Organisation, name: str) -> dict[str, Any]:
    agents = survey_agents(org).agents
    found = agents.get(name)
    return {
        "reads": found.permissions.read_outboxes if found else [],
        "read_by": [other for other, each in agents.items() if each.may_read(name)],
        "asks": sorted(found.further["team"].names) if found and "team" in found.further else [],
    }


def _prompt(org: Organisation, name: str) -> dict[str, Any]:
    """Return what the agent's model would be sent now, or why that cannot be said."""
    try:
        preview = preview_tick(org, settings_to_look_by(org))
        agents = preview.survey.agents
        if name not in agents or not takes_turns(agents[name], preview.snapshot.config):
            return {"tick": preview.tick, "messages": [], "why_not": "no model is ever asked for it"}
        inputs = preview.inputs_regardless(name)
    except LemmingError as error:
        return {"tick": None, "messages": [], "why_not": str(error)}
    return {
        "tick": preview.tick,
        "model": f"{inputs.model.provider} {inputs.model.model}".strip(),
        "messages": inputs.question,
        "waits_for": preview.waits_for(name),
        "why_not": "",
    }


def settings(org: OrgPath, *, file: str = "org") -> dict[str, Any]:
    """Return one file of settings, `org` or `models`, with what is wrong with it."""
    if file not in SETTINGS:
        raise UsageError(f'there are no settings "{file[:80]}"', hint=nearest(file[:80], [*SETTINGS]))
    return as_it_stands(org, SETTINGS[file])
