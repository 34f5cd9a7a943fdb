"""`plan_execute`: ask for a plan, take its steps one after another, plan again where one fails, sum up.

The plan is a memory, which a person may edit between turns; it says where things stand. What a step writes is
kept there as its result: only the entries of the sum-up leave.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from lemming.capabilities.strategies.registry import Beforehand
from lemming.kernel.base.contract import TurnReply
from lemming.kernel.base.errors import ConfigError, ContractError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.quoting import fenced, mark_for, quoted
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.fitting import about
from lemming.kernel.journal.report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.values import Step as Yielded
from lemming.kernel.turn.values import Steps

MOST_STEPS, MOST_IN_ALL = 20, 60
"""Steps that one plan may have, and with those of plans before it."""
RESULT_CHARS = 2000
FAILED = "FAILED:"
PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_STEPS},
    },
    "required": ["goal", "steps"],
    "additionalProperties": False,
}
ASK_FOR_PLAN = (
    "First make a plan. Reply with one JSON object and nothing else:\n"
    '{"goal": "what is to be achieved", "steps": ["what to do first", "what to do next"]}\n'
    f"Few steps, at most {MOST_STEPS}; none where one reply is enough. Each is one thing to find out or "
    "to do, with your tools where they help. The answer itself is no step: it is asked for at the end."
)
ASK_FOR_STEP = (
    "Now take step {number}, and only that. Nothing that you write leaves yet: when the step is done, reply "
    "with one entry whose text is its result. If it cannot be done, begin that text with FAILED: and say why."
)
SUM_UP = (
    "The steps are over. Sum up: reply as you were told above, with the entries that are to leave. "
    "Nothing that you wrote in the steps has left."
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `turn.options` of a `plan_execute` may say."""

    replans: int = field(
        default=2, metadata=about("How often it plans again after a step that failed.", ge=0, le=20)
    )
    step_replies: int = field(
        default=8, metadata=about("Replies a step may take, in all turns; then it has failed.", ge=1, le=100)
    )


@dataclass(frozen=True, kw_only=True)
class MemoryStep:
    """A step of a plan, as the memory holds it. `replies`: how many it took so far."""

    step: str
    status: Literal["open", "done", "failed", "skipped"] = "open"
    result: str = ""
    replies: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """A plan, as the memory holds it. `replans`: how often it was made anew; `is_over`: it was summed up."""

    goal: str
    steps: list[MemoryStep]
    replans: int = 0
    is_over: bool = False


def key_of(request: str) -> str:
    """Return the key of the memory that a plan is, for a request or for the inbox."""
    return f"plan-{request}" if request else "plan"


def given(before: Beforehand) -> dict[str, Any]:
    """Return the plan that the memory holds, if it is to go on; raise `ConfigError` for what is none."""
    key = key_of(before.request)
    file = f"agents/{before.agent.name}/memory/{key}.json"
    if key in before.damaged:
        raise ConfigError("the plan cannot be read", where=file, hint="repair or remove it")
    if key not in before.memories:
        return {}
    try:
        plan = _read(before.memories[key])
    except ValueError as error:
        hint = 'a plan is {"goal": "...", "steps": [{"step": "...", "status": "open"}]}; mend it or remove it'
        raise ConfigError(f"the value is no plan: {error}", where=file, hint=hint) from error
    return {} if plan.is_over else {"plan": asdict(plan)}


def _read(value: Any) -> MemoryPlan:
    """Return the plan that a memory holds, in which a step may be a text; raise `ValueError` for none."""
    if isinstance(value, Mapping) and isinstance(value.get("steps"), list):
        steps = [{"step": step} if isinstance(step, str) else step for step in value["steps"]]
        value = {**value, "steps": steps}
    plan: MemoryPlan = value_of(MemoryPlan, value)
    return plan


def plan_execute(turn: Turn) -> Steps:
    """Make a plan or go on with one, take its steps, and sum up."""
    if "plan" in turn.given:
        plan = _read(turn.given["plan"])
    else:
        plan = MemoryPlan(**(yield from _planned(turn, ASK_FOR_PLAN)))
        yield from _keep(turn, plan)
    while (place := _first_open(plan)) is not None:
        plan, end = yield from _step(turn, plan, place)
        if end:
            return end
        if plan.steps[place].status == "failed":
            plan = yield from _planned_again(turn, plan, place)
    return (yield from _sum_up(turn, plan))


def _first_open(plan: MemoryPlan) -> int | None:
    return next((place for place, step in enumerate(plan.steps) if step.status == "open"), None)


def _planned(turn: Turn, text: str) -> Generator[Yielded, Any, dict[str, Any]]:
    """Ask for a plan, and return its goal and steps."""
    found = yield from turn.value(_asking(turn, text), PLAN_SCHEMA)
    steps = [MemoryStep(step=text) for text in found["steps"] if text.strip()]
    return {"goal": found["goal"], "steps": steps}


def _planned_again(turn: Turn, plan: MemoryPlan, place: int) -> Generator[Yielded, Any, MemoryPlan]:
    """Return a plan whose open steps are made anew, as often as that may be; after that, one without any."""
    options: Options = turn.options
    before, steps = plan.steps[: place + 1], None
    if plan.replans < options.replans:
        failed = f"Step {place + 1} failed. Plan again what is left to do. {ASK_FOR_PLAN}"
        text = f"{_plan_text(turn, plan)}\n\n{failed}"
        try:
            steps = (yield from _planned(turn, text))["steps"][: max(MOST_IN_ALL - len(before), 0)]
        except ContractError as error:
            turn.remark(f"no other plan was made: {error}")
    if steps is None:
        left = [replace(it, status="skipped") if it.status == "open" else it for it in plan.steps]
        plan = replace(plan, steps=left)
    else:
        plan = replace(plan, steps=[*before, *steps], replans=plan.replans + 1)
    yield from _keep(turn, plan)
    return plan


def _step(turn: Turn, plan: MemoryPlan, place: int) -> Generator[Yielded, Any, tuple[MemoryPlan, End | None]]:
    """Take a step as far as the turn goes; return the plan after it, and the turn's end if it is over."""
    options: Options = turn.options
    step, said = plan.steps[place], ""
    messages = _asking(turn, f"{_plan_text(turn, plan)}\n\n{ASK_FOR_STEP.format(number=place + 1)}")
    end: End | None = None
    while step.status == "open" and not end:
        if step.replies >= options.step_replies:
            yield from turn.act(TurnReply())  # what its tools gave is nothing for what comes next
            step = replace(step, status="failed", result=f"{FAILED} it took {step.replies} replies")
        elif not turn.replies_left:
            end = "step_limit"
        else:
            reply = yield from turn.reply(messages)
            said = _text_of(reply) or said
            yield from turn.act(reply._replace(outbox_entries=()))
            step = replace(step, replies=step.replies + 1)
            if turn.is_over or turn.has_asked:
                end = "done" if turn.is_over else "waits"
            elif not turn.results:
                is_failed = not said or said.lstrip().startswith(FAILED)
                said = said or f"{FAILED} it gave no result"
                step = replace(step, status="failed" if is_failed else "done", result=said[:RESULT_CHARS])
    steps = [*plan.steps[:place], step, *plan.steps[place + 1 :]]
    plan = replace(plan, steps=steps, is_over=turn.is_over)  # a request that comes back is planned anew
    yield from _keep(turn, plan)
    if end == "step_limit":
        turn.leave(f"step {place + 1} of {len(plan.steps)} of your plan is to go on")
    return plan, end


def _sum_up(turn: Turn, plan: MemoryPlan) -> Steps:
    """Ask for what is to leave, and do it."""
    messages = _asking(turn, f"{_plan_text(turn, plan)}\n\n{SUM_UP}") if plan.steps else turn.prompt
    while turn.replies_left:
        yield from turn.act((yield from turn.reply(messages)))
        if turn.has_asked and not turn.is_over:
            return "waits"
        if turn.is_over or not turn.results:
            yield from _keep(turn, replace(plan, is_over=True))
            return "done"
    turn.leave("your plan is to be summed up")
    return "step_limit"


def _keep(turn: Turn, plan: MemoryPlan) -> Generator[Yielded, Any, None]:
    yield from turn.remember(key_of(turn.request), asdict(plan))


def _asking(turn: Turn, text: str) -> list[Message]:
    """Return the prompt with a question at its end."""
    *before, last = turn.prompt
    return [*before, {**last, "content": f"{last['content']}\n\n{text}"}]


def _plan_text(turn: Turn, plan: MemoryPlan) -> str:
    """Return the plan as the model is told of it: its results are data."""
    lines = [to_line({"goal": plan.goal})]
    for number, step in enumerate(plan.steps, 1):
        result = {"result": step.result} if step.result else {}
        lines.append(to_line({"number": number, "step": step.step, "status": step.status, **result}))
    text = quoted("\n".join(lines))
    mark = mark_for([*(message["content"] for message in turn.prompt), text])
    return f"# Your plan\n{fenced(text, mark)}"


def _text_of(reply: TurnReply) -> str:
    """Return what the entries of a reply say."""
    payloads = [entry.payload for entry in reply.outbox_entries]
    return "\n".join(
        text if isinstance(text := payload.get("text"), str) else to_line(payload) for payload in payloads
    ).strip()
