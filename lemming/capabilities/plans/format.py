"""What `agents/<name>/plan.json` may hold, as types; they are the schema that `lemming schema plan` prints.

Format: docs/plans.md. What the types cannot say (names, ways, permissions) is for `plans.plan_problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lemming.capabilities.judges.settings import JudgedBy, WhoJudges
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.fitting import about, fields_of, key_of, keyed
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation

PROVIDER = "plan"
PLAN_LIMIT_BYTES = 256 << 10
MOST_STEPS = 200
END, FAIL = "end", "fail"
"""Where a way may lead beside a step: the run ends with its answer, or fails."""

StepKind = Literal["ask", "plan", "tool", "wait", "parallel", "decide"]
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Verify(JudgedBy):
    """Who or what must pass a step's answer before the step counts as done."""

    by: WhoJudges = field(
        default="",
        metadata=about(
            "Who judges the answer in the turn of who is asked, before it leaves (docs/strategies.md), "
            'in place of ask and tool: an agent, a model key, {"agent"}, {"model"} or {"command"}.'
        ),
    )
    ask: str = field(default="", metadata=about("The agent that is asked whether it passes."))
    task: str = field(default="", metadata=about("What it is asked; it is shown the task and the answer."))
    tool: str = field(
        default="", metadata=about("A tool that passes it by succeeding, in place of an agent.")
    )
    args: Json = field(
        default_factory=dict, metadata=about("The tool's arguments; texts in it are templates.")
    )
    when: Json | None = field(
        default=None,
        metadata=about('What must hold of its answer. Default: an agent says "passes": true; a tool works.'),
    )
    attempts: int = field(
        default=2, metadata=about("How often the step is done in all until it passes.", ge=1, le=20)
    )

    def __post_init__(self) -> None:
        if self.by:
            super().__post_init__()

    @property
    def judge_name(self) -> str:
        """Who or what must pass the answer, in words."""
        return self.ask or self.tool or str(self.who)

    @property
    def judge(self) -> JudgedBy | None:
        """Who judges the answer before it leaves; None where somebody is asked, or a tool called, later."""
        if not self.by:
            return None
        return JudgedBy(by=self.by, policy=self.policy, max=self.max, then=self.then)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What the step waits for: one of file, ticks, tick and time."""

    file: str = field(default="", metadata=about("A file the agent may read, such as ./shared/in.csv."))
    until: Literal["exists", "changes"] = field(
        default="exists",
        metadata=about("Until the file is there, or is another one than when the step began."),
    )
    ticks: int | None = field(default=None, metadata=about("So many ticks.", ge=1, le=1_000_000))
    tick: int | None = field(default=None, metadata=about("Until this tick.", ge=0))
    time: str = field(
        default="", metadata=about("Until this moment, such as 2027-01-31T09:00:00Z; a template.")
    )
    at_most: int | None = field(
        default=None, metadata=about("Ticks after which the step fails; null: it waits on.", ge=1)
    )


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way out of a step, taken when its condition holds."""

    when: Json = field(metadata=about("The condition. Its fields begin with answer, start, steps, ..."))
    to: str = field(metadata=about('The name of a step, "end" or "fail".', min_length=1))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Ways out of a step by a field of its answer that the model fills."""

    field_: str = field(metadata=keyed("field", "A field of the answer.", min_length=1))
    to: dict[str, str] = field(
        metadata=about("Where each value leads; the answer's schema allows no others.")
    )


@dataclass(frozen=True, kw_only=True)
class Member:
    """One thing that is done: an agent or a person is asked, a tool called, or something waited for."""

    name: str = field(metadata=about("What other steps call it.", min_length=1, max_length=63))
    ask: str = field(default="", metadata=about("The agent or the person that is asked."))
    plan: str = field(default="", metadata=about("An agent whose brain is another plan."))
    tool: str = field(default="", metadata=about("A tool that the agent may call."))
    args: Json = field(
        default_factory=dict,
        metadata=about("The tool's arguments, or what a plan is given; texts in it are templates."),
    )
    wait: Wait | None = field(default=None, metadata=about("What is waited for."))
    task: str = field(default="", metadata=about("What is asked, a template: {{start}}, {{steps.NAME}}, ..."))
    context: list[str] = field(
        default_factory=list,
        metadata=about("What goes with the task: start, previous, steps.NAME, memory.KEY, last.AGENT, ..."),
    )
    writes: str = field(default="", metadata=about("The key of the run under which the answer is kept."))
    output: Json | None = field(default=None, metadata=about("JSON Schema that the answer must satisfy."))
    deadline: int | str | None = field(
        default=None,
        metadata=about('When the request expires: after so many ticks, or "2h"; null: it does not.'),
    )
    default: Any = field(
        default=None, metadata=about("The answer when nobody gave one in time: a text or an object.")
    )
    attempts: int = field(default=1, metadata=about("How often it is tried in all.", ge=1, le=20))
    verify: Verify | None = field(default=None, metadata=about("Who or what must pass the answer."))

    @property
    def asked(self) -> str:
        """The agent that is asked; empty when none is."""
        return self.ask or self.plan


@dataclass(frozen=True, kw_only=True)
class Step(Member):
    """A step of a plan: something that is done, several things at once, or only a decision."""

    parallel: list[Member] = field(
        default_factory=list, metadata=about("A band: these are done at once, and all must succeed.")
    )
    each: str = field(
        default="",
        metadata=about("A list, such as steps.NAME.items: the step is done for each item, its {{item}}."),
    )
    at_once: int = field(
        default=8, metadata=about("How many items of `each` are under way at once, at most.", ge=1, le=32)
    )
    most: int = field(
        default=100,
        metadata=about("A list with more items fails the step: it bounds the cost.", ge=1, le=1000),
    )
    on_item_failure: Literal["fail", "keep"] = field(
        default="fail",
        metadata=about(
            'What becomes of the step when one item failed. keep: it goes on, and the item says "failed".'
        ),
    )
    retry: Literal["all", "failed_only"] = field(
        default="all",
        metadata=about("What of a band is done again when one of it failed and attempts are left."),
    )
    routes: list[Route] = field(
        default_factory=list, metadata=about("Ways out, the first whose condition holds is taken.")
    )
    choose: Choice | None = field(
        default=None, metadata=about("Ways out by a field that the model fills, in place of routes.")
    )
    else_: str = field(
        default="", metadata=keyed("else", "Where it goes on when no way out fits; required then.")
    )
    then: str = field(default="", metadata=about("The step that follows; default: the next one in the file."))
    limit: int | None = field(
        default=None,
        metadata=about("How often a run may begin the step; required of where loops lead.", ge=1, le=1000),
    )
    at_limit: str = field(
        default=FAIL, metadata=about('Where it goes on in place of one time more: a step, "end", "fail".')
    )
    on_failure: str = field(
        default=FAIL, metadata=about('Where it goes on when the step failed: a step, "end", "fail".')
    )

    @property
    def keeps_failures(self) -> bool:
        """Whether an item of `each` that failed is an answer among the others."""
        return self.on_item_failure == "keep"

    @property
    def kind(self) -> StepKind:
        """What the step does; that it is one thing only is checked elsewhere."""
        return kind_of(self)


@dataclass(frozen=True, kw_only=True)
class AgentPlan:
    """How requests to an agent are answered."""

    description: str = field(default="", metadata=about("What the plan is for."))
    steps: list[Step] = field(
        default_factory=list,
        metadata=about("What is done, in this order where nothing else is said.", max_length=MOST_STEPS),
    )
    input: Json | None = field(
        default=None,
        metadata=about("JSON Schema of a request's fields, start.FIELD: one that does not fit is refused."),
    )
    answer: str = field(
        default="", metadata=about("The answer to the request, a template; default: the last step's answer.")
    )
    max_steps: int = field(default=100, metadata=about("Steps a run may begin in all.", ge=1, le=10_000))
    keep_runs: int = field(
        default=10, metadata=about("Ended runs that stay in the agent's memory, the newest.", ge=0, le=1000)
    )
    proposals: str = field(
        default="",
        metadata=about("The person who must approve a plan that comes with a request; empty: none may come."),
    )

    def step(self, name: str) -> Step | None:
        """Return the step of that name; None when there is none, or it is inside a band."""
        return next((step for step in self.steps if step.name == name), None)

    def members(self) -> Iterator[tuple[Member, Step, str]]:
        """Yield every step and every member of a band, each with its step and its JSON pointer."""
        for index, step in enumerate(self.steps):
            yield step, step, f"/steps/{index}"
            for place, member in enumerate(step.parallel):
                yield member, step, f"/steps/{index}/parallel/{place}"

    def judges(self) -> Iterator[tuple[str, JudgedBy, str]]:
        """Yield who judges the answers of steps before they leave: whose answers, who, and a JSON pointer."""
        for member, _, place in self.members():
            if member.verify and (said := member.verify.judge):
                yield member.ask, said, f"{place}/verify"


def step_keys() -> list[str]:
    """Return the keys of a step, in the order of the page."""
    return [key_of(field) for field in fields_of(Step)]


def kind_of(member: Member) -> StepKind:
    """Return what a step or a member of a band does.

    >>> kind_of(Member(name="a", ask="ada"))
    'ask'
    """
    if isinstance(member, Step) and member.parallel:
        return "parallel"
    if member.wait is not None:
        return "wait"
    if member.tool:
        return "tool"
    return "plan" if member.plan else "ask" if member.ask else "decide"


def is_planner(agent: Agent, config: Config) -> bool:
    """Return whether the agent's brain is a plan."""
    return _stands_for_a_plan(agent.model.key, config)


def _stands_for_a_plan(model_key: str, config: Config) -> bool:
    entry = config.models.get(model_key)
    return entry is not None and entry.provider == PROVIDER


def waited_files(org: Organisation, agent: str) -> list[str]:
    """Return the files for which an agent's plan waits somewhere; none for a plan that cannot be read."""
    try:
        plan = read_plan(org, agent).value
    except ConfigError:  # its turns fail and say so
        return []
    return sorted({member.wait.file for member, _, _ in plan.members() if member.wait and member.wait.file})


def plan_file(agent: str) -> str:
    """Return the path of an agent's plan."""
    return f"{paths.agent_folder(agent)}/plan.json"


def read_plan(org: Organisation, agent: str) -> Document[AgentPlan]:
    """Return an agent's plan as its file says; raise `ConfigError` that lists what is wrong with the file."""
    file = plan_file(agent)
    try:
        reading = org.files.reading(file, lambda raw: plan_in(raw, file), limit_bytes=PLAN_LIMIT_BYTES)
    except OSError as error:
        require_about_one_file(f"{org.base}/{file}", error)
        raise unreadable(file, error) from error
    outcome = reading.outcome
    if isinstance(outcome, Exception):
        raise outcome.with_traceback(None)
    return outcome


def plan_in(raw: bytes, file: str) -> Document[AgentPlan]:
    """Return the plan in a file's bytes; raise `ConfigError`."""
    return read_text(raw, file, AgentPlan, limit_bytes=PLAN_LIMIT_BYTES, unknown_keys_are="at the top")
