"""The strategy `plan_execute`: ask for a plan, run its steps in order, replan after a failure, and summarize.

The plan is a memory with the current progress, editable by a person between turns. The text of a step is
stored in the plan as its result; only the entries of the summary leave the turn.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lemming.capabilities.strategies import reflexion
from lemming.ext import ConfigError, ContractError, Steps, TurnReply, make_field
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import escape_markers, fence_text, make_marker
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.turn_report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import Turn, react
from lemming.kernel.turn.turn_values import Step as Yielded
from lemming.libraries.strategy_registry import RegisteredStrategy, StrategyInputs

MAX_STEPS, MAX_TOTAL_STEPS = 20, 60
"""Maximum steps of one plan, and of all plans of a turn."""
RESULT_CHARS = 2000
FAILED = "FAILED:"
PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_STEPS},
    },
    "required": ["goal", "steps"],
    "additionalProperties": False,
}
ASK_FOR_PLAN = (
    "First make a plan. Reply with one JSON object and nothing else:\n"
    '{"goal": "what is to be achieved", "steps": ["what to do first", "what to do next"]}\n'
    f"Few steps, at most {MAX_STEPS}; none where one reply is enough. Each is one thing to find out or "
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
class PlanExecuteOptions:
    """The options of `plan_execute` in `turn.options`."""

    replans: int = make_field(2, "Maximum number of new plans after a failed step.", ge=0, le=20)
    step_replies: int = make_field(8, "Maximum number of replies for a step, in all turns.", ge=1, le=100)


@dataclass(frozen=True, kw_only=True)
class MemoryPlanStep:
    """A step of a plan as stored in memory. `replies`: the number of replies so far."""

    step: str
    status: Literal["open", "done", "failed", "skipped"] = "open"
    result: str = ""
    replies: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """A plan as stored in memory. `replans`: the number of replans so far. `is_over`: True after the summary."""

    goal: str
    steps: list[MemoryPlanStep]
    replans: int = 0
    is_over: bool = False


def plan_memory_key(request: str) -> str:
    """Return the memory key of the plan for a request, or for the inbox."""
    return f"plan-{request}" if request else "plan"


def load_inputs(inputs: StrategyInputs) -> dict[str, Any]:
    """Return the stored plan if unfinished. Raise `ConfigError` for an invalid plan."""
    key = plan_memory_key(inputs.request)
    file = f"agents/{inputs.agent.name}/memory/{key}.json"
    if key in inputs.damaged:
        raise ConfigError("the plan cannot be read", where=file, hint="repair or remove it")
    if key not in inputs.memories:
        return {}
    try:
        plan = _parse_plan(inputs.memories[key])
    except ValueError as error:
        hint = 'write {"goal": "...", "steps": [{"step": "...", "status": "open"}]}, or remove it'
        raise ConfigError(f"not a valid plan: {error}", where=file, hint=hint) from error
    return {} if plan.is_over else {"plan": asdict(plan)}


def _parse_plan(value: Any) -> MemoryPlan:
    """Return the plan in a memory value; a step may be a plain text. Raise `ValueError` for an invalid plan."""
    if isinstance(value, Mapping) and isinstance(value.get("steps"), list):
        steps = [{"step": step} if isinstance(step, str) else step for step in value["steps"]]
        value = {**value, "steps": steps}
    plan: MemoryPlan = to_value(MemoryPlan, value)
    return plan


def plan_execute(turn: Turn) -> Steps:
    """Create or resume a plan, run its steps, and summarize."""
    if "plan" in turn.snapshot:
        plan = _parse_plan(turn.snapshot["plan"])
    else:
        plan = MemoryPlan(**(yield from _ask_for_plan(turn, ASK_FOR_PLAN)))
        yield from _save_plan(turn, plan)
    while (index := next((i for i, step in enumerate(plan.steps) if step.status == "open"), None)) is not None:
        plan, end = yield from _run_step(turn, plan, index)
        if end:
            return end
        if plan.steps[index].status == "failed":
            plan = yield from _replan(turn, plan, index)
    return (yield from _summarize(turn, plan))


def _ask_for_plan(turn: Turn, text: str) -> Generator[Yielded, Any, dict[str, Any]]:
    answer = yield from turn.ask_json(_build_prompt(turn, text), PLAN_SCHEMA)
    steps = [MemoryPlanStep(step=text) for text in answer["steps"] if text.strip()]
    return {"goal": answer["goal"], "steps": steps}


def _replan(turn: Turn, plan: MemoryPlan, index: int) -> Generator[Yielded, Any, MemoryPlan]:
    """Return the plan with its open steps replaced, or with the steps skipped after too many replans."""
    options: PlanExecuteOptions = turn.options
    past_steps, steps = plan.steps[: index + 1], None
    if plan.replans < options.replans:
        prompt_text = f"Step {index + 1} failed. Plan again what is left to do. {ASK_FOR_PLAN}"
        text = f"{_format_plan(turn, plan)}\n\n{prompt_text}"
        try:
            steps = (yield from _ask_for_plan(turn, text))["steps"][: max(MAX_TOTAL_STEPS - len(past_steps), 0)]
        except ContractError as error:
            turn.remark(f"no other plan was made: {error}")
    if steps is None:
        remaining_steps = [replace(step, status="skipped") if step.status == "open" else step for step in plan.steps]
        plan = replace(plan, steps=remaining_steps)
    else:
        plan = replace(plan, steps=[*past_steps, *steps], replans=plan.replans + 1)
    yield from _save_plan(turn, plan)
    return plan


def _run_step(turn: Turn, plan: MemoryPlan, index: int) -> Generator[Yielded, Any, tuple[MemoryPlan, End | None]]:
    """Run a step as far as the turn allows. Return the updated plan, and the turn's end if the turn is over."""
    options: PlanExecuteOptions = turn.options
    step, step_text = plan.steps[index], ""
    messages = _build_prompt(turn, f"{_format_plan(turn, plan)}\n\n{ASK_FOR_STEP.format(number=index + 1)}")
    end: End | None = None
    while step.status == "open" and not end:
        if step.replies >= options.step_replies:
            yield from turn.act(TurnReply())  # results of its tools do not concern the next step
            step = replace(step, status="failed", result=f"{FAILED} it took {step.replies} replies")
        elif not turn.replies_left:
            end = "step_limit"
        else:
            reply = yield from turn.ask_reply(messages)
            step_text = _reply_text(reply) or step_text
            yield from turn.act(reply._replace(outbox_entries=()))
            step = replace(step, replies=step.replies + 1)
            if turn.is_finished or turn.has_asked:
                end = "done" if turn.is_finished else "waits"
            elif not turn.results:
                is_failed = not step_text or step_text.lstrip().startswith(FAILED)
                step_text = step_text or f"{FAILED} it gave no result"
                step = replace(step, status="failed" if is_failed else "done", result=step_text[:RESULT_CHARS])
    steps = [*plan.steps[:index], step, *plan.steps[index + 1 :]]
    plan = replace(plan, steps=steps, is_over=turn.is_finished)  # a request that comes back is planned anew
    yield from _save_plan(turn, plan)
    if end == "step_limit":
        turn.leave_note(f"step {index + 1} of {len(plan.steps)} of your plan is to go on")
    return plan, end


def _summarize(turn: Turn, plan: MemoryPlan) -> Steps:
    """Ask the model for the final entries, and act on them."""
    messages = _build_prompt(turn, f"{_format_plan(turn, plan)}\n\n{SUM_UP}") if plan.steps else turn.prompt
    while turn.replies_left:
        yield from turn.act((yield from turn.ask_reply(messages)))
        if turn.has_asked and not turn.is_finished:
            return "waits"
        if turn.is_finished or not turn.results:
            yield from _save_plan(turn, replace(plan, is_over=True))
            return "done"
    turn.leave_note("your plan is to be summed up")
    return "step_limit"


def _save_plan(turn: Turn, plan: MemoryPlan) -> Generator[Yielded, Any, None]:
    yield from turn.remember(plan_memory_key(turn.request), asdict(plan))


def _build_prompt(turn: Turn, text: str) -> list[Message]:
    """Return the prompt with a question appended."""
    *earlier, last = turn.prompt
    return [*earlier, {**last, "content": f"{last['content']}\n\n{text}"}]


def _format_plan(turn: Turn, plan: MemoryPlan) -> str:
    """Return the plan as text for the model, with the results marked as data."""
    lines = [to_line({"goal": plan.goal})]
    for number, step in enumerate(plan.steps, 1):
        result = {"result": step.result} if step.result else {}
        lines.append(to_line({"number": number, "step": step.step, "status": step.status, **result}))
    text = escape_markers("\n".join(lines))
    mark = make_marker([*(message["content"] for message in turn.prompt), text])
    return f"# Your plan\n{fence_text(text, mark)}"


def _reply_text(reply: TurnReply) -> str:
    payloads = [entry.payload for entry in reply.outbox_entries]
    return "\n".join(
        text if isinstance(text := payload.get("text"), str) else to_line(payload) for payload in payloads
    ).strip()


REACT = RegisteredStrategy("react", react)
PLAN_EXECUTE = RegisteredStrategy("plan_execute", plan_execute, PlanExecuteOptions, load_inputs, has_memory=True)
REFLEXION = RegisteredStrategy("reflexion", reflexion.reflexion, reflexion.ReflexionOptions, reflexion.load_inputs)
