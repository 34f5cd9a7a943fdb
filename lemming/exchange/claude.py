"""From Claude Code's subagents (`.claude/agents/*.md`) to agents: the rest is kept under `x-claude`."""

from __future__ import annotations

from typing import Any

from lemming.exchange.mapping import (
    HARMLESS,
    agent_name,
    join_team,
    model_key,
    resume_of,
    take_skills,
    tell_of_others,
    title_of,
    tools_for,
    words_in,
)
from lemming.exchange.source import Destination, Source, Taken
from lemming.kernel.base.paths import GUIDE

AGENTS, SKILLS = ".claude/agents", ".claude/skills"
_MOST_STEPS = 50

_NOT_CARRIED_OVER = {
    "permissionMode": "tools of LeMMing go by permissions, and ask nobody",
    "hooks": "no hooks are run",
    "mcpServers": "put servers into config/mcp.json",
    "memory": "memories of LeMMing need no setting; what it has stored there is not taken over",
    "isolation": "it works in its own workspace",
}


def take_claude(source: Source, known: Destination, taken: Taken) -> None:
    """Take the subagents of a project, its skills, and its `AGENTS.md` or `CLAUDE.md`."""
    is_guided = _take_guide(source, known, taken)
    skills = take_skills(source, SKILLS, known, taken)
    for path in source.below(AGENTS):
        file = f"{AGENTS}/{path}"
        document = source.document(file) if path.endswith(".md") else None
        if document is None:
            continue
        keys, body = document
        name = agent_name(str(keys.get("name") or path.rpartition("/")[2].removesuffix(".md")))
        if not {"name", "description"} & keys.keys():
            taken.remark(file, "has neither name nor description, so it is no subagent: left out")
        elif not name:
            taken.remark(file, "has no name that an agent can have: left out")
        elif name in taken.resumes:
            taken.remark(file, f"there is another agent {name}: left out")
        else:
            patterns = _skills(keys, skills, taken, file)
            taken.resumes[name] = _resume(name, file, keys, body, known, taken, patterns, is_guided)
    _join_teams(taken)
    folders, files = source.names(".claude")
    others = [f"{name}/" for name in folders if name not in ("agents", "skills")]
    tell_of_others(taken, ".claude", [*others, *(name for name in files if name != "CLAUDE.md")])


def _skills(keys: dict[str, Any], there: dict[str, str], taken: Taken, file: str) -> list[str]:
    listed = words_in(keys.get("skills"))
    for missing in (each for each in listed if each not in there):
        taken.remark(file, f'skill "{missing}" is not in {SKILLS}; put it into skills/')
    if listed:
        taken.remark(file, "its skills are read when they are needed, not put into every prompt")
    return [there.get(each, each) for each in listed]


def _resume(
    name: str,
    file: str,
    keys: dict[str, Any],
    body: str,
    known: Destination,
    taken: Taken,
    skills: list[str],
    is_guided: bool,
) -> dict[str, Any]:
    description = str(keys.get("description") or "")
    # remarks on what is taken away are of no use to anybody
    denied = set(tools_for(words_in(keys.get("disallowedTools")), known, Taken(), file))
    said = words_in(keys.get("tools"))
    tools = tools_for([word for word in said if not _is_team(word)], known, taken, file)
    if "tools" not in keys:
        tools = [tool for tool in HARMLESS if tool in known.tools]
        taken.remark(
            file, f"it may use all tools there: here {', '.join(tools)}; add others to permissions.tools"
        )
    for key, why in _NOT_CARRIED_OVER.items():
        if key in keys:
            taken.remark(file, f"{key}: {why}")
    steps = keys.get("maxTurns")
    limited = min(steps, _MOST_STEPS) if isinstance(steps, int) and steps > 0 else 0
    if limited and limited != steps:
        taken.remark(file, f"maxTurns {steps}: a turn has at most {_MOST_STEPS} steps")
    key = model_key(str(keys.get("model") or ""), taken, file)
    return resume_of(
        name,
        title=title_of(name, description),
        instructions=body or description or f"You are {name}.",
        key=key,
        read=list(known.people),
        tools=[tool for tool in tools if tool not in denied],
        schedule={"run_every_n_ticks": 1, "wake": "addressed"},
        skills=skills,
        guides=is_guided,
        turn={"max_steps": limited} if limited else {"max_steps": 5} if tools else {},
        x_claude=_kept(keys, name, key, limited),
    )


def _kept(keys: dict[str, Any], name: str, key: str, limited: int) -> dict[str, Any]:
    """Return the keys of which the resume does not say all."""
    is_said = {
        "name": keys.get("name") == name,
        "model": keys.get("model") == key,
        "maxTurns": limited and keys.get("maxTurns") == limited,
        "skills": isinstance(keys.get("skills"), list),
    }
    return {each: value for each, value in keys.items() if not is_said.get(each)}


def _is_team(word: str) -> bool:
    return word.partition("(")[0] in ("Agent", "Task")


def _join_teams(taken: Taken) -> None:
    """Let agents ask those that they may start: `Agent(reviewer, tester)`; without names, all others."""
    for name, resume in taken.resumes.items():
        kept = resume.get("x-claude", {})
        for word in filter(_is_team, words_in(kept.get("tools"))):
            named = words_in(word.partition("(")[2].rstrip(")"))
            there = [each for each in (named or taken.resumes) if each in taken.resumes and each != name]
            for missing in (each for each in named if each not in taken.resumes):
                taken.remark(name, f"it may start {missing}, which is not here: left out")
            join_team(taken, name, there)


def _take_guide(source: Source, known: Destination, taken: Taken) -> bool:
    """Take what the project tells all of its agents, if it does; return whether it does."""
    found = next((file for file in (GUIDE, "CLAUDE.md", ".claude/CLAUDE.md") if source.raw(file)), None)
    if found and not (known.is_in_place and found == GUIDE):
        taken.optional[GUIDE] = source.raw(found) or b""
    return found is not None
