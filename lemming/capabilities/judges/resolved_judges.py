"""Judges of a turn, resolved when the turn starts and recorded with the turn: instructions, model key and policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.judges.judges_settings import (
    JudgeSettings,
    JudgeTarget,
    OnRejection,
    get_judge_settings,
    parse_judge_settings,
    parse_judge_target,
)
from lemming.capabilities.requests.requests_settings import get_team
from lemming.ext import ConfigError, ModelEntry, TickContext
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import AllowedPath, resolve_org_path, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.inboxes.turn_agenda import Task
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.model_entries import FREE_OPTIONS

COMMAND_KEY = "command:"
"""Name of a judging program in the place of a model key."""
COMMAND_DEADLINE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ResolvedJudge:
    """Judge of a turn, as recorded with the turn.

    `model` is a model key, empty for the agent's own model. `asker`: the agent that asked for the judge, if
    other than the author; such a judge checks only answers to the asker.
    """

    by: str
    model: str = ""
    command: list[str] = field(default_factory=list)
    instructions: str = ""
    policy: str = ""
    max: int = 3
    then: OnRejection = "flag"
    asker: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the judge in the form of a journal record, without empty fields."""
        return {key: value for key, value in vars(self).items() if value}


def load_recorded_judge(plain: Mapping[str, Any]) -> ResolvedJudge:
    """Return the judge in a journal record. Raises: ValueError for an invalid record."""
    judge: ResolvedJudge = to_value(ResolvedJudge, dict(plain))
    return judge


def resolve_judges(
    tick_context: TickContext, agent: Agent, task: Task | None, file_contents: Mapping[str, bytes]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the judges of a turn, the agent's own judges first, and the files read by the judges.

    The author sees the reasons of the judges. Raises: ConfigError for a missing judge or policy.
    """
    judges: list[dict[str, Any]] = []
    files: list[str] = []
    for owner, settings, asker in _iter_judge_settings(tick_context, agent, task):
        judge = resolve_judge(tick_context, agent, settings, owner, file_contents)
        judges.append({**judge, "asker": asker} if asker else judge)
        files += iter_judge_files(tick_context, settings, owner)
    return judges, files


def iter_judge_files(tick_context: TickContext, settings: JudgeSettings, owner: Agent | None) -> Iterator[str]:
    """Yield the files used by a judge. `owner`: the naming agent, or None for a gate."""
    by = parse_judge_target(settings.by)
    if by.kind != "command" and by.name in tick_context.mail.resumes:
        yield paths.resume_file(by.name)
    if settings.policy_file:
        yield _policy_path(tick_context, settings, owner).path_key


def _policy_path(tick_context: TickContext, settings: JudgeSettings, owner: Agent | None) -> AllowedPath:
    """Return the path of a policy: by an agent's permissions, or below the organisation's folder."""
    base, file = tick_context.org.base, settings.policy_file
    if owner:
        return resolve_path(owner, base, file, "read", caller="verify.policy")
    return resolve_org_path(base, file.removeprefix("./"), caller="policy")


def _iter_judge_settings(
    tick_context: TickContext, agent: Agent, task: Task | None
) -> Iterator[tuple[Agent, JudgeSettings, str]]:
    """Yield the judge settings of a turn, with the naming agent and the asker, if any."""
    if own_settings := get_judge_settings(agent):
        yield agent, own_settings, ""
    if not (task and task.request and (asker := tick_context.mail.resumes.get(task.request.agent))):
        return
    team, payload = get_team(asker), task.request.payload
    for member in team.ask_members if team else ():
        if member.agent == agent.name and (settings := get_judge_settings(member)):
            yield asker, settings, asker.name
    # only for senders of human text, as in a plan: a model's payload may come from anyone
    if "verify" in payload and resolve_turn_policy(asker, tick_context.config).is_written:
        try:
            yield asker, parse_judge_settings(payload["verify"], "verify"), asker.name
        except ValueError as error:
            raise ConfigError(str(error), where=paths.agent_folder(asker.name)) from error


def resolve_judge(
    tick_context: TickContext,
    agent: Agent,
    settings: JudgeSettings,
    owner: Agent | None,
    file_contents: Mapping[str, bytes],
    *,
    location: str = "",
) -> dict[str, Any]:
    """Return a resolved judge. `owner`: the naming agent, whose permissions apply to the policy file."""
    location = location or (paths.resume_file(owner.name) if owner else "")
    by, policy = parse_judge_target(settings.by), settings.policy
    try:
        if settings.policy_file:
            policy = read_text(_policy_path(tick_context, settings, owner), file_contents)
        model, instructions = _resolve_judge_model(tick_context, by)
    except (ConfigError, ToolError) as error:
        raise ConfigError(error.message, where=error.where or location, hint=error.hint) from error
    judge = ResolvedJudge(
        by=str(by),
        model=model if model != agent.model.key else "",
        command=[*by.command],
        instructions=instructions,
        policy=policy,
        max=settings.max,
        then=settings.then,
    )
    return judge.as_json()


def _resolve_judge_model(tick_context: TickContext, by: JudgeTarget) -> tuple[str, str]:
    """Return the model key of a judge, and the instructions of a judging agent."""
    if by.kind == "command":
        return f"{COMMAND_KEY}{' '.join(by.command)}", ""
    agents, models = tick_context.mail.resumes, tick_context.config.models
    if by.kind != "model" and by.name in agents:
        return agents[by.name].model.key, agents[by.name].instructions
    if by.kind != "agent" and by.name in models:
        return by.name, ""
    hint = did_you_mean(by.name, by.list_candidates(agents, models))
    raise ConfigError(f'verify.by: {by.kind_text} "{by.name}" does not exist', hint=hint)


def iter_program_entries(judges: Iterable[Mapping[str, Any]]) -> Iterator[ModelEntry]:
    """Yield the model entry of each judge program, with the judge's model key as `model`.

    The program runs once, in the organisation's folder, and costs nothing.
    """
    fixed = {**FREE_OPTIONS, "prompt": "full", "attempts": 1, "deadline_s": COMMAND_DEADLINE_S}
    for judge in judges:
        if command := judge.get("command"):
            options = {"command": command, "cwd": ".", "effects": "none"}
            yield ModelEntry(provider="cli", model=judge["model"], options=options, **fixed)
