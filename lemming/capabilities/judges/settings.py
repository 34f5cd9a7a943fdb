"""The key `verify` of a resume, of one of a team, of a plan's step: who judges, by what, and what then. Pure.

Rules: docs/strategies.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from lemming.capabilities.requests.settings import TeamMember
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.files.documents import problems_of
from lemming.kernel.files.fitting import Misfit, about, fit
from lemming.kernel.org.resume import Agent

WhoJudges = str | dict[str, str | list[str]]
"""An agent or a model key, or an object with one of agent, model and command."""
Then = Literal["flag", "fail", "pass"]
UNVERIFIED = "unverified"
"""The engine's tag of entries that left without having passed."""
LEFT_UNPASSED = ("unverified: ", "let through: ")
"""How remarks begin on what left without having passed: with a tag, or without one."""
DEFAULT_POLICY = "Is it true to what the author was shown, complete, and clear to whoever reads it?"
"""What is judged by where nobody says otherwise."""
VERIFY = "verify"
_KINDS = ("agent", "model", "command")


class NamedJudge(NamedTuple):
    """Who judges. `kind` is empty where one word may be an agent's name or a model key."""

    kind: Literal["", "agent", "model", "command"]
    name: str
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"the command {self.name}" if self.kind == "command" else self.name


def judge_named(plain: WhoJudges) -> NamedJudge:
    """Return who is to judge; raise `Misfit` for what names nobody.

    >>> judge_named("critic").name, judge_named({"command": ["./check.sh", "-q"]}).command
    ('critic', ('./check.sh', '-q'))
    """
    if isinstance(plain, str):
        if not plain:
            raise Misfit("verify.by names nobody")
        return NamedJudge("", plain)
    kind = next((kind for kind in _KINDS if kind in plain), None)
    if kind is None or len(plain) != 1:
        other = next((key for key in plain if key != kind), "")
        who = 'a name, {"agent": name}, {"model": key} or {"command": ["program", ...]}'
        raise Misfit(f"verify.by is {who}", hint=nearest(other, [*_KINDS]) if other else "")
    said = plain[kind]
    if kind != "command":
        if not isinstance(said, str) or not said:
            raise Misfit(f"verify.by.{kind} is a name")
        return NamedJudge("agent" if kind == "agent" else "model", said)
    if isinstance(said, str) or not said or not said[0]:
        raise Misfit('verify.by.command is a program and its arguments: ["./check.sh"]')
    return NamedJudge("command", said[0], tuple(said))


@dataclass(frozen=True, kw_only=True)
class JudgedBy:
    """Who must pass what is written before it leaves, and what happens when it does not pass."""

    by: WhoJudges = field(
        metadata=about(
            'Who judges: an agent, a model key, {"agent": name}, {"model": key} or {"command": ["program", '
            "...]}. An agent judges by its instructions and model; it takes no turn."
        )
    )
    policy: str = field(
        default="",
        metadata=about(
            "What it judges by: a text, or a file such as ./shared/policy.md.", max_length=100_000
        ),
    )
    max: int = field(default=3, metadata=about("How many drafts are judged at most.", ge=1, le=10))
    then: Then = field(
        default="flag",
        metadata=about(
            "What happens to a draft that did not pass. flag: it leaves with the tag unverified; fail: the "
            "request, or the turn, fails with the reason; pass: it leaves as it is."
        ),
    )

    def __post_init__(self) -> None:
        judge_named(self.by)

    @property
    def who(self) -> NamedJudge:
        """Who judges."""
        return judge_named(self.by)

    @property
    def policy_file(self) -> str:
        """The file that `policy` names; empty where it is the text itself."""
        return self.policy if self.policy.startswith("./") and len(self.policy.split()) == 1 else ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a file says it."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of judges."""

    verify: JudgedBy | None = field(
        default=None, metadata=about("Who must pass what it writes before it leaves; null: nobody.")
    )


def verify_of(said: Agent | TeamMember) -> JudgedBy | None:
    """Return who judges what an agent, or one of a team when it is asked, writes; None: nobody."""
    found: JudgedBy | None = said.further.get(VERIFY)
    return found


def judged_by_in(plain: Any, where: str) -> JudgedBy:
    """Return what is said inside a value that has no type of its own; raise `Misfit` that names `where`."""
    known = [each.name for each in fields(JudgedBy)]
    for key in plain if isinstance(plain, dict) else ():
        if key not in known:
            raise Misfit(f'{where} has no key "{key}" ({nearest(key, known) or ", ".join(known)})')
    try:
        verification: JudgedBy = fit(JudgedBy, plain)
    except Misfit as error:
        wrong = problems_of(JudgedBy, plain)[0]
        raise Misfit(f"{where}{wrong.pointer.replace('/', '.')}: {wrong.message}") from error
    return verification
