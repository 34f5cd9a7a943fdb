"""The key `verify` of a resume, a team member or a step: judge, policy, consequence. Pure. Rules: docs/plans.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from lemming.capabilities.requests.requests_settings import TeamMember
from lemming.ext import describe_field
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.fast_decoder import TypeMismatch, fit_value, make_field
from lemming.kernel.files.json_documents import find_problems
from lemming.kernel.org.resume import Agent

JudgeReference = str | dict[str, str | list[str]]
"""An agent or a model key, or an object with one of agent, model and command."""
OnRejection = Literal["flag", "fail", "pass"]
UNVERIFIED = "unverified"
"""The engine's tag of entries that left without having passed."""
DEFAULT_POLICY = "Is it true to what the author was shown, complete, and clear to whoever reads it?"
"""Default criteria of a judge."""
VERIFY = "verify"
_KINDS = ("agent", "model", "command")


class JudgeTarget(NamedTuple):
    """Reference to a judge. `kind` is empty if the name may be an agent or a model key."""

    kind: Literal["", "agent", "model", "command"]
    name: str
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"the command {self.name}" if self.kind == "command" else self.name

    @property
    def kind_text(self) -> str:
        """The kind of a missing judge, for messages."""
        return {"agent": "agent", "model": "model key"}.get(self.kind, "agent and no model key")

    def list_candidates(self, agents: Iterable[str], models: Iterable[str]) -> list[str]:
        """Return the names that the reference may stand for."""
        return [*(agents if self.kind != "model" else ()), *(models if self.kind != "agent" else ())]


def parse_judge_target(plain: JudgeReference) -> JudgeTarget:
    """Return the referenced judge.

    Raises: Misfit for an invalid reference.

    >>> parse_judge_target("critic").name, parse_judge_target({"command": ["./check.sh", "-q"]}).command
    ('critic', ('./check.sh', '-q'))
    """
    if isinstance(plain, str):
        if not plain:
            raise TypeMismatch("verify.by must name a judge")
        return JudgeTarget("", plain)
    kind = next((kind for kind in _KINDS if kind in plain), None)
    if kind is None or len(plain) != 1:
        other = next((key for key in plain if key != kind), "")
        expected = 'a name, {"agent": name}, {"model": key} or {"command": ["program", ...]}'
        raise TypeMismatch(f"verify.by must be {expected}", hint=did_you_mean(other, [*_KINDS]) if other else "")
    value = plain[kind]
    if kind != "command":
        if not isinstance(value, str) or not value:
            raise TypeMismatch(f"verify.by.{kind} must be a name")
        return JudgeTarget("agent" if kind == "agent" else "model", value)
    if isinstance(value, str) or not value or not value[0]:
        raise TypeMismatch('verify.by.command must be a list of a program and its arguments, such as ["./check.sh"]')
    return JudgeTarget("command", value[0], tuple(value))


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Judge of drafts before publication, and the consequence of a rejection."""

    by: JudgeReference = field(
        metadata=describe_field(
            'The judge: an agent, a model key, {"agent": name}, {"model": key} or {"command": '
            '["program", ...]}. An agent judges with its instructions and model, and takes no turn.'
        )
    )
    policy: str = make_field(
        "", "Rules for the judge: a text, or a file such as ./shared/policy.md.", max_length=100_000
    )
    max: int = make_field(3, "Maximum number of judged drafts.", ge=1, le=10)
    then: OnRejection = make_field(
        "flag",
        "What happens to a rejected draft. flag: it is sent with the tag unverified; fail: the "
        "request, or the turn, fails with the reason; pass: it is sent as it is.",
    )

    def __post_init__(self) -> None:
        parse_judge_target(self.by)

    @property
    def target(self) -> JudgeTarget:
        """Referenced judge."""
        return parse_judge_target(self.by)

    @property
    def policy_file(self) -> str:
        """File named by `policy`, or the empty string for a policy text."""
        return self.policy if self.policy.startswith("./") and len(self.policy.split()) == 1 else ""

    def as_json(self) -> dict[str, Any]:
        """Return the settings as written in a file."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class JudgesResumeSettings:
    """Judge settings in a resume."""

    verify: JudgeSettings | None = make_field(None, "Judge that must accept what the agent writes; null: none.")


def get_judge_settings(owner: Agent | TeamMember) -> JudgeSettings | None:
    """Return the judge settings of an agent or a team member, or None."""
    settings: JudgeSettings | None = owner.extensions.get(VERIFY)
    return settings


def parse_judge_settings(plain: Any, location: str) -> JudgeSettings:
    """Return the judge settings in an untyped value. Raises: Misfit with `location` for invalid settings."""
    keys = [field_info.name for field_info in fields(JudgeSettings)]
    for key in plain if isinstance(plain, dict) else ():
        if key not in keys:
            raise TypeMismatch(f'{location} has no key "{key}" ({did_you_mean(key, keys) or ", ".join(keys)})')
    try:
        settings: JudgeSettings = fit_value(JudgeSettings, plain)
    except TypeMismatch as error:
        problem = find_problems(JudgeSettings, plain)[0]
        raise TypeMismatch(f"{location}{problem.pointer.replace('/', '.')}: {problem.message}") from error
    return settings
