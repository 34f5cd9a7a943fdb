"""Types of `agents/<name>/plan.json`, the source of the schema printed by `lemming export schema plan`.

Format: docs/plans.md. Rules beyond types (names, permissions) are in `plans.plan_rules`. Transitions at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lemming.capabilities.judges.judges_settings import JudgeReference, JudgeSettings
from lemming.ext import ConfigError, describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.fast_decoder import file_fields, file_key, make_field
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation

PROVIDER = "plan"
PLAN_LIMIT_BYTES = 256 << 10
MAX_STEPS = 200
END, FAIL = "end", "fail"
"""Targets besides a step: the run ends with its answer, or fails."""

StepKind = Literal["ask", "plan", "tool", "wait", "parallel", "decide"]
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class VerifySettings(JudgeSettings):
    """Verification of a step's answer before the step counts as done."""

    by: JudgeReference = make_field(
        "",
        "The judge in the turn of the agent that answers (docs/plans.md), in place of ask and "
        'tool: an agent, a model key, {"agent"}, {"model"} or {"command"}.',
    )
    ask: str = make_field("", "The agent that checks the answer.")
    task: str = make_field("", "The question to that agent; it also sees the task and the answer.")
    tool: str = make_field("", "A tool that accepts the answer by succeeding, in place of an agent.")
    args: Json = make_field(dict, "Arguments of the tool; texts are templates.")
    when: Json | None = make_field(
        None, 'Condition on the result. Default: an agent says "passes": true; a tool succeeds.'
    )
    attempts: int = make_field(2, "Maximum number of times the step is done until it passes.", ge=1, le=20)

    def __post_init__(self) -> None:
        if self.by:
            super().__post_init__()

    @property
    def judge_settings(self) -> JudgeSettings | None:
        """Settings of the judge before sending, or None for a later check by an agent or a tool."""
        if not self.by:
            return None
        return JudgeSettings(by=self.by, policy=self.policy, max=self.max, then=self.then)


@dataclass(frozen=True, kw_only=True)
class WaitSettings:
    """Condition for continuing a step: one of file, ticks, tick and time."""

    file: str = make_field("", "A file the agent may read, such as ./shared/in.csv.")
    until: Literal["exists", "changes"] = make_field(
        "exists", "Wait until the file exists, or has changed since the step began."
    )
    ticks: int | None = make_field(None, "Number of ticks.", ge=1, le=1_000_000)
    tick: int | None = make_field(None, "Wait until this tick.", ge=0)
    time: str = make_field("", "Wait until this time, such as 2027-01-31T09:00:00Z; a template.")
    at_most: int | None = make_field(None, "Ticks after which the step fails; null: it keeps waiting.", ge=1)


@dataclass(frozen=True, kw_only=True)
class Route:
    """Transition out of a step, taken when its condition holds."""

    when: Json = field(metadata=describe_field("The condition. Its fields begin with answer, start, steps, ..."))
    to: str = field(metadata=describe_field('The name of a step, "end" or "fail".', min_length=1))


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings:
    """Transitions out of a step by a field of its answer, filled by the model."""

    field_: str = field(metadata=describe_field("A field of the answer.", key="field", min_length=1))
    to: dict[str, str] = field(
        metadata=describe_field("Next step for each value; the answer's schema allows no others.")
    )


@dataclass(frozen=True, kw_only=True)
class StepAction:
    """Action of a step: a request to an agent or person, a tool call, or a wait."""

    name: str = field(metadata=describe_field("Name of the step.", min_length=1, max_length=63))
    ask: str = make_field("", "The agent or the person to ask.")
    plan: str = make_field("", "An agent that follows another plan.")
    tool: str = make_field("", "A tool to call; the agent must have it.")
    args: Json = make_field(dict, "Arguments of the tool, or input of the plan; texts are templates.")
    wait: WaitSettings | None = make_field(None, "What to wait for.")
    task: str = make_field("", "The task, a template: {{start}}, {{steps.NAME}}, ...")
    context: list[str] = make_field(
        list, "Values sent with the task: start, previous, steps.NAME, memory.KEY, last.AGENT, ..."
    )
    writes: str = make_field("", "Key of the run that stores the answer.")
    output: Json | None = make_field(None, "JSON Schema that the answer must satisfy.")
    deadline: int | str | None = make_field(None, 'When the request expires: a number of ticks, or "2h"; null: never.')
    default: Any = make_field(None, "Answer to use after the deadline: a text or an object.")
    attempts: int = make_field(1, "Maximum number of attempts.", ge=1, le=20)
    verify: VerifySettings | None = make_field(None, "Check that the answer must pass.")

    @property
    def target_agent(self) -> str:
        """Agent of the request, or the empty string."""
        return self.ask or self.plan


@dataclass(frozen=True, kw_only=True)
class StepDefinition(StepAction):
    """Step of a plan: one action, several parallel actions, or only a decision."""

    parallel: list[StepAction] = make_field(list, "Parallel steps; all must succeed.")
    each: str = make_field("", "A list, such as steps.NAME.items: the step is done for each item, as {{item}}.")
    at_once: int = make_field(8, "Maximum number of parallel items of `each`.", ge=1, le=32)
    most: int = make_field(100, "Maximum number of items; more fail the step.", ge=1, le=1000)
    on_item_failure: Literal["fail", "keep"] = make_field(
        "fail", 'What happens when an item fails. keep: the step continues, and the item says "failed".'
    )
    retry: Literal["all", "failed_only"] = make_field(
        "all", "Which parallel steps are repeated when one failed and attempts are left."
    )
    routes: list[Route] = make_field(list, "Next steps with conditions; the first that holds is taken.")
    choose: ChoiceSettings | None = make_field(None, "Next steps by a field of the answer, in place of routes.")
    else_: str = make_field("", "Where it goes on when no way out fits; required then.", key="else")
    then: str = make_field("", "The next step; default: the next one in the file.")
    limit: int | None = make_field(
        None, "Maximum number of times a run begins the step; required where a loop leads.", ge=1, le=1000
    )
    at_limit: str = make_field(FAIL, 'Next step after that: a step, "end", "fail".')
    on_failure: str = make_field(FAIL, 'Next step after a failure: a step, "end", "fail".')

    @property
    def keeps_failures(self) -> bool:
        """Return True if a failed item of `each` counts as an answer."""
        return self.on_item_failure == "keep"

    @property
    def kind(self) -> StepKind:
        """Kind of the step. Validation of a single kind happens elsewhere."""
        return get_kind(self)


@dataclass(frozen=True, kw_only=True)
class AgentPlan:
    """Plan for answering requests to an agent."""

    description: str = make_field("", "Purpose of the plan.")
    steps: list[StepDefinition] = make_field(
        list, "The steps, in order unless a step says otherwise.", max_length=MAX_STEPS
    )
    input: Json | None = make_field(None, "JSON Schema of a request's fields, start.FIELD; other requests are refused.")
    answer: str = make_field("", "The answer to the request, a template; default: the last step's answer.")
    max_steps: int = make_field(100, "Maximum number of steps that a run begins.", ge=1, le=10_000)
    keep_runs: int = make_field(10, "Number of ended runs kept in the agent's memory.", ge=0, le=1000)
    proposals: str = make_field("", "Has no effect any more: requests bring no plans.")

    def get_step(self, name: str) -> StepDefinition | None:
        """Return the step with this name, or None. Parallel actions are not steps."""
        return next((step for step in self.steps if step.name == name), None)

    def iter_actions(self) -> Iterator[tuple[StepAction, StepDefinition, str]]:
        """Yield every step and every parallel action, with its step and its JSON pointer."""
        for index, step in enumerate(self.steps):
            yield step, step, f"/steps/{index}"
            for action_index, action in enumerate(step.parallel):
                yield action, step, f"/steps/{index}/parallel/{action_index}"

    def iter_judges(self) -> Iterator[tuple[str, JudgeSettings, str]]:
        """Yield the judges of answers before sending: agent, judge settings and JSON pointer."""
        for action, _, pointer in self.iter_actions():
            if action.verify and (judge_settings := action.verify.judge_settings):
                yield action.ask, judge_settings, f"{pointer}/verify"


def step_keys() -> list[str]:
    """Return the keys of a step, in documentation order."""
    return [file_key(field) for field in file_fields(StepDefinition)]


def get_kind(action: StepAction) -> StepKind:
    """Return the kind of a step or of a parallel action.

    >>> get_kind(StepAction(name="a", ask="ada"))
    'ask'
    """
    if isinstance(action, StepDefinition) and action.parallel:
        return "parallel"
    if action.wait is not None:
        return "wait"
    if action.tool:
        return "tool"
    return "plan" if action.plan else "ask" if action.ask else "decide"


def is_planner(agent: Agent, config: Config) -> bool:
    """Return True if the agent's brain is a plan."""
    entry = config.models.get(agent.model.key)
    return entry is not None and entry.provider == PROVIDER


def find_awaited_files(org: Organisation, agent: str) -> list[str]:
    """Return the files awaited by an agent's plan. An unreadable plan awaits none."""
    try:
        plan = load_plan(org, agent).value
    except ConfigError:  # its turns fail and say so
        return []
    return sorted({action.wait.file for action, _, _ in plan.iter_actions() if action.wait and action.wait.file})


def plan_file(agent: str) -> str:
    """Return the path of an agent's plan."""
    return f"{paths.agent_folder(agent)}/plan.json"


def load_plan(org: Organisation, agent: str) -> Document[AgentPlan]:
    """Return an agent's plan from its file. Raises: ConfigError with all problems of the file."""
    file = plan_file(agent)
    try:
        return org.files.get_value(file, lambda raw: parse_plan(raw, file), limit_bytes=PLAN_LIMIT_BYTES)
    except OSError as error:
        require_about_one_file(f"{org.base}/{file}", error)
        raise unreadable_error(file, error) from error


def parse_plan(raw: bytes, file: str) -> Document[AgentPlan]:
    """Return the plan in a file's bytes. Raises: ConfigError for an invalid plan."""
    return parse_document(raw, file, AgentPlan, limit_bytes=PLAN_LIMIT_BYTES, unknown_key_policy="at the top")


EXITS = (END, FAIL)


class Transition(NamedTuple):
    """Target of a transition (a step, "end" or "fail"), and the pointer to its definition."""

    to: str
    pointer: str


def iter_explicit_transitions(plan: AgentPlan, index: int) -> Iterator[Transition]:
    """Yield the explicit transitions of a step."""
    step, base_pointer = plan.steps[index], f"/steps/{index}"
    for number, route in enumerate(step.routes):
        yield Transition(route.to, f"{base_pointer}/routes/{number}/to")
    if step.choose:
        for value, to in step.choose.to.items():
            yield Transition(to, f"{base_pointer}/choose/to/{value}")
    for key, to in (("else", step.else_), ("then", step.then)):
        if to:
            yield Transition(to, f"{base_pointer}/{key}")
    for key, to in (("at_limit", step.at_limit), ("on_failure", step.on_failure)):
        if to != FAIL:
            yield Transition(to, f"{base_pointer}/{key}")


def default_next_step(plan: AgentPlan, name: str) -> str:
    """Return the target of a step without routes: its `then`, or the next step in the file."""
    index = next(number for number, step in enumerate(plan.steps) if step.name == name)
    next_name = plan.steps[index + 1].name if index + 1 < len(plan.steps) else END
    return plan.steps[index].then or next_name


def has_conditions(step: StepDefinition) -> bool:
    """Return True if a step has conditional transitions."""
    return bool(step.routes or step.choose)


def outgoing_transitions(plan: AgentPlan, index: int) -> Iterator[Transition]:
    """Yield every transition of a step, including the implicit transition by file order."""
    yield from iter_explicit_transitions(plan, index)
    step = plan.steps[index]
    if not step.then and not has_conditions(step):
        yield Transition(default_next_step(plan, step.name), f"/steps/{index}")


def successors(plan: AgentPlan) -> dict[str, set[str]]:
    """Return the possible next steps of each step."""
    names = {step.name for step in plan.steps}
    return {
        step.name: {transition.to for transition in outgoing_transitions(plan, index)} & names
        for index, step in enumerate(plan.steps)
    }


def reachable_steps(plan: AgentPlan) -> dict[str, set[str]]:
    """Return all possible later steps of each step, including the step itself in a loop."""
    next_steps = successors(plan)
    result: dict[str, set[str]] = {}
    for name in next_steps:
        visited: set[str] = set()
        pending = [*next_steps[name]]
        while pending:
            step_name = pending.pop()
            if step_name not in visited:
                visited.add(step_name)
                pending.extend(next_steps[step_name])
        result[name] = visited
    return result
