"""The key `until` in the payload of a request: checks, judge, and the number of turns. Format: docs/requests.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from lemming.capabilities.judges.judges_settings import JudgeReference, JudgeSettings, parse_judge_target
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.fast_decoder import TypeMismatch, fit_value, make_field
from lemming.kernel.files.json_documents import find_problems
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath

UNTIL = "until"
"""Key of the payload of a request, and of the receipts in the payload of its answer."""
MAX_CHECKS = 10
GOAL_POLICY = "What the request asks for is reached, and the answer says so truly."
"""Policy of a model that judges, where `until` has none."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The goal of a request: what must hold before its answer leaves."""

    checks: list[list[str]] = make_field(
        list,
        'Programs that must end with exit status 0, each a list of words: ["pytest", "-q"]. They run in the sandbox, '
        "in the agent's workspace. Only a person's request may name programs.",
    )
    by: JudgeReference | None = make_field(
        None,
        'The judge that must accept the answer: an agent, a model key, {"agent": name} or {"model": key}; null: none.',
    )
    policy: str = make_field("", "Rules for the judge: a text, or a file such as ./shared/goal.md.", max_length=100_000)
    max_turns: int = make_field(5, "Turns whose answer is checked; then the request has failed.", ge=1, le=20)

    def __post_init__(self) -> None:
        if not self.checks and self.by is None:
            raise TypeMismatch('until must have checks, a judge ("by"), or both')
        if len(self.checks) > MAX_CHECKS:
            raise TypeMismatch(f"until.checks must have at most {MAX_CHECKS} programs, got {len(self.checks)}")
        for index, command in enumerate(self.checks):
            if not command or not command[0] or "\0" in "".join(command):
                expected = 'a program and its arguments, such as ["pytest", "-q"]'
                raise TypeMismatch(f"until.checks.{index} must be {expected}")
        if self.by is not None and parse_judge_target(self.by).kind == "command":
            raise TypeMismatch('until.by must be an agent or a model key: put the program into "checks"')

    @property
    def judge_settings(self) -> JudgeSettings | None:
        """Settings of the judge, or None without a judge."""
        return None if self.by is None else JudgeSettings(by=self.by, policy=self.policy, max=1, then="fail")


def parse_goal(plain: Any) -> Goal:
    """Return the goal in the value of `until`. Raises: TypeMismatch, with place and fix, for an invalid value."""
    keys = [field_info.name for field_info in fields(Goal)]
    for key in plain if isinstance(plain, dict) else ():
        if key not in keys:
            raise TypeMismatch(f'until has no key "{key}" ({did_you_mean(key, keys) or ", ".join(keys)})')
    try:
        goal: Goal = fit_value(Goal, plain)
    except TypeMismatch as error:
        if str(error):
            raise
        problem = find_problems(Goal, plain)[0]
        raise TypeMismatch(f"until{problem.pointer.replace('/', '.')}: {problem.message}") from error
    return goal


def require_valid_goal(base: OrgPath, plain: Any, target: str) -> None:
    """Raise `UsageError` for a value of `until` that a request to an agent must not have."""
    hint = '{"checks": [["pytest", "-q"]], "by": "critic", "policy": "...", "max_turns": 5}'
    try:
        goal = parse_goal(plain)
    except TypeMismatch as error:
        raise UsageError(str(error), hint=hint) from error
    config, agents = load_config(base), survey_agents(base).agents
    agent = agents.get(target)
    if agent is not None:
        policy = resolve_turn_policy(agent, config)
        if not config.has_model_turns(agent) or policy.is_written:
            hint = "ask an agent with a model, or leave it out"
            raise UsageError(f"until: {target} takes no turns of a model", hint=hint)
        if policy.take == "all":
            hint = f'set "take": "one" in turn of agents/{target}/resume.json'
            raise UsageError(f"until: {target} takes all requests in one turn, and no answer is checked", hint=hint)
    require_judge(goal, agents, config.models)


def require_judge(goal: Goal, agents: Collection[str], models: Collection[str]) -> None:
    """Raise `UsageError` if the judge of a goal is no agent and no model key."""
    if goal.by is None:
        return
    judge = parse_judge_target(goal.by)
    candidates = judge.list_candidates(agents, models)
    if judge.name not in candidates:
        kind = judge.kind.replace("model", "model key") or "agent or model key"
        hint = did_you_mean(judge.name, candidates) or f"use one of {', '.join(candidates[:20])}"
        raise UsageError(f'until.by: there is no {kind} "{judge.name}"', hint=hint)
