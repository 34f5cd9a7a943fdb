"""Plans as Python objects: steps, decisions, branches, approvals. Written as `plan.json`: docs/plans.md.

In a text, in `context` or in a condition, a step stands for its answer, as `{{steps.NAME}}`. As the target of
a route a step stands for itself. A route back to an earlier step uses the step's name.

>>> draft = ask("draft", "writer", f"Write about {start}.", limit=3)
>>> review = ask("review", "critic", f"How good is it? {draft}",
...     routes=[(answer["score"] >= 7, "ship")], else_=draft)
>>> article = plan(draft, review, approve("ship", "human", f"May it go out? {draft}"), answer=f"{draft}")
>>> _, judged, _ = article.as_json()["steps"]
>>> judged["routes"].pop()
{'when': {'field': 'answer.score', 'op': 'ge', 'value': 7}, 'to': 'ship'}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from lemming.capabilities.plans.plan_format import END, FAIL, parse_plan, step_keys
from lemming.capabilities.plans.plan_rules import require_valid
from lemming.capabilities.plans.reference_validation import find_named_step
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.libraries.tool_decorator import get_declaration
from lemming.obligations.answer_fields import make_answer_parser

Json = dict[str, Any]
_FILE = "plan.json"


@accept_old_names
class Condition:
    """A condition of a plan or gate; combine conditions with `&`, `|` and `~`."""

    def __init__(self, json: Json) -> None:
        self.json = json

    def __and__(self, other: Condition) -> Condition:
        return self._combine("all", other)

    def __or__(self, other: Condition) -> Condition:
        return self._combine("any", other)

    def __invert__(self) -> Condition:
        return Condition({"not": self.json})

    def __bool__(self) -> bool:
        raise TypeError("a condition is checked while the plan runs: combine conditions with &, | and ~")

    def _combine(self, operator: str, other: Condition) -> Condition:
        parts = [member for operand in (self, other) for member in operand.json.get(operator, [operand.json])]
        return Condition({operator: parts})


class RunValue:
    """A value of a plan run by path: `{{path}}` in a text, a field in a condition."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getitem__(self, key: str | int) -> RunValue:
        return RunValue(f"{self.path}.{key}")

    def __str__(self) -> str:
        return "{{" + self.path + "}}"

    __hash__ = object.__hash__

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self.holds("is", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self.holds("is_not", value)

    def __lt__(self, value: Any) -> Condition:
        return self.holds("lt", value)

    def __le__(self, value: Any) -> Condition:
        return self.holds("le", value)

    def __gt__(self, value: Any) -> Condition:
        return self.holds("gt", value)

    def __ge__(self, value: Any) -> Condition:
        return self.holds("ge", value)

    def holds(self, op: str, *value: Any) -> Condition:
        """Return a condition with any operation of docs/plans.md: `previous.holds("contains", "bees")`."""
        if any(isinstance(operand, RunValue) for operand in value):
            raise UsageError(f"{self.path} {op} {value[0].path}: a field must be compared with a value, got a field")
        return Condition({"field": self.path, "op": op, **({"value": value[0]} if value else {})})


@accept_old_names
class PlanStep(RunValue):
    """A step of a plan, or a member of a parallel step. `functions` are Python functions used as tools."""

    def __init__(self, json: Json, functions: Sequence[Callable[..., Any]] = ()) -> None:
        super().__init__(f"steps.{json['name']}")
        self.name: str = json["name"]
        self.functions = (*functions,)
        self.json = {key: json[key] for key in sorted(json, key=_key_order)}


RouteTarget = str | PlanStep
Template = str | RunValue
start, previous, answer = RunValue("start"), RunValue("previous"), RunValue("answer")
keys, memory, last, context = RunValue("keys"), RunValue("memory"), RunValue("last"), RunValue("context")
item, number = RunValue("item"), RunValue("number")
_KEYS = step_keys()


class StepKeys(TypedDict, total=False):
    """Keys common to all kinds of steps; docs/plans.md describes each key.

    `routes`: conditions, each with a target. `choose`: a field of the answer, and a target for each of its values.
    `output`: a JSON Schema, or a type with fields. `each`: a list; the step runs for each `item` of the list.
    """

    context: Sequence[Template]
    writes: str
    output: Json | type[Any]
    deadline: int | str
    default: Any
    attempts: int
    verify: Mapping[str, Any]
    each: Template
    at_once: int
    most: int
    on_item_failure: Literal["fail", "keep"]
    retry: Literal["all", "failed_only"]
    routes: Sequence[tuple[Condition | Json, RouteTarget]]
    choose: tuple[str, Mapping[str, RouteTarget]]
    else_: RouteTarget
    then: RouteTarget
    limit: int
    at_limit: RouteTarget
    on_failure: RouteTarget


def ask(name: str, agent: str, task: Template, **options: Unpack[StepKeys]) -> PlanStep:
    """Return a step that asks an agent or a person."""
    return PlanStep({"name": name, "ask": agent, "task": str(task), **_step_to_json(options)})


def approve(
    name: str,
    person: str,
    task: Template,
    *,
    approved: RouteTarget = END,
    rejected: RouteTarget = FAIL,
    **options: Unpack[StepKeys],
) -> PlanStep:
    """Return a step with a person's decision, `approve` or `reject`, and a target for each."""
    options["choose"] = ("decision", {"approve": approved, "reject": rejected})
    return ask(name, person, task, **options)


def follow(
    name: str, agent: str, task: Template = "", args: Mapping[str, Any] | None = None, **options: Unpack[StepKeys]
) -> PlanStep:
    """Return a step that runs the plan of another agent, with `args` as its input fields."""
    inputs = {**({"task": str(task)} if task else {}), **({"args": _to_json(dict(args))} if args else {})}
    return PlanStep({"name": name, "plan": agent, **inputs, **_step_to_json(options)})


def call(
    name: str, tool: str | Callable[..., Any], args: Mapping[str, Any] | None = None, **options: Unpack[StepKeys]
) -> PlanStep:
    """Return a step that calls a tool, given by name or as a function."""
    is_function = not isinstance(tool, str)
    tool_name: str = tool if isinstance(tool, str) else _get_tool_name(tool)
    raw_step = {"name": name, "tool": tool_name, "args": _to_json(dict(args or {})), **_step_to_json(options)}
    return PlanStep(raw_step, [tool] if is_function and callable(tool) else [])


def _get_tool_name(function: Callable[..., Any]) -> str:
    about = get_declaration(function)
    return about.name if about and about.name else function.__name__


def wait(
    name: str,
    *,
    file: str = "",
    until: Literal["exists", "changes"] = "exists",
    ticks: int | None = None,
    tick: int | None = None,
    time: Template = "",
    at_most: int | None = None,
    **options: Unpack[StepKeys],
) -> PlanStep:
    """Return a step that waits for a file, for a number of ticks, for a tick or for a time."""
    values = {"file": file, "ticks": ticks, "tick": tick, "time": str(time), "at_most": at_most}
    conditions = {key: value for key, value in values.items() if value not in ("", None)}
    if until != "exists":
        conditions["until"] = until
    return PlanStep({"name": name, "wait": conditions, **_step_to_json(options)})


def parallel(name: str, *members: PlanStep, **options: Unpack[StepKeys]) -> PlanStep:
    """Return a parallel step: all its members run concurrently, and the step ends with the last member."""
    raw_step = {"name": name, "parallel": [member.json for member in members], **_step_to_json(options)}
    return PlanStep(raw_step, [function for member in members for function in member.functions])


def decide(name: str, *routes: tuple[Condition | Json, RouteTarget], else_: RouteTarget) -> PlanStep:
    """Return a step that only decides: the target of the first true condition, or `else_`."""
    return PlanStep({"name": name, **_step_to_json({"routes": routes, "else_": else_})})


class PlanFile:
    """A plan as written to its file. `functions` are Python functions used as tools in the plan."""

    def __init__(self, json: Json, functions: Sequence[Callable[..., Any]]) -> None:
        self._json = json
        self.functions = tuple(dict.fromkeys(functions))
        require_valid(parse_plan(dump_pretty(json), _FILE), _FILE)

    def as_json(self) -> Json:
        """Return the content of the plan's file."""
        return _to_json(self._json)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return dump_pretty(self._json).decode()


def plan(
    *steps: PlanStep,
    answer: Template = "",
    description: str = "",
    max_steps: int | None = None,
    keep_runs: int | None = None,
    input: Json | type[Any] | None = None,
) -> PlanFile:
    """Return a plan, validated as by `lemming validate`, except for permissions.

    In `lemming.build` the result is an agent, or the value of an agent's key `plan`. Raises `ConfigError`
    with the location in the file.
    """
    names = [name for step in steps for name in (step.name, *_list_members(step))]
    if name := find_named_step(str(answer), names):
        hint = f'write answer={name} if it is the step, or answer="{{{{steps.{name}}}}}"'
        raise UsageError(f'answer must refer to the step "{name}", got its name as a text', hint=hint)
    values = {
        "description": description,
        "steps": [step.json for step in steps],
        "answer": str(answer),
        "max_steps": max_steps,
        "keep_runs": keep_runs,
        "input": None if input is None else _output_schema(input),
    }
    raw_plan = {key: value for key, value in values.items() if value not in ("", None)}
    return PlanFile(raw_plan, [function for step in steps for function in step.functions])


def _list_members(step: PlanStep) -> list[str]:
    return [member["name"] for member in step.json.get("parallel", ())]


def _step_to_json(options: Mapping[str, Any]) -> Json:
    return {(key := keyword.rstrip("_")): _CONVERTERS.get(key, _to_json)(value) for keyword, value in options.items()}


def _target_name(to: RouteTarget) -> str:
    return to.name if isinstance(to, PlanStep) else to


def _choice_to_json(choice: tuple[str, Mapping[str, RouteTarget]]) -> Json:
    field, ways = choice
    return {"field": field, "to": {value: _target_name(to) for value, to in ways.items()}}


def _to_path(value: Template) -> str:
    return value.path if isinstance(value, RunValue) else value


def _output_schema(schema_or_type: Json | type[Any]) -> Json:
    return make_answer_parser(schema_or_type)[0] if isinstance(schema_or_type, type) else schema_or_type


def _to_json(value: Any) -> Any:
    """Return a value with run values as templates, and conditions in the format of files."""
    if isinstance(value, RunValue):
        return str(value)
    if isinstance(value, Condition):
        return _to_json(value.json)
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, list | tuple) else value


def _key_order(key: str) -> int:
    return _KEYS.index(key) if key in _KEYS else len(_KEYS)


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("then", "else", "at_limit", "on_failure"), _target_name),
    "routes": lambda routes: [{"when": _to_json(condition), "to": _target_name(to)} for condition, to in routes],
    "choose": _choice_to_json,
    "context": lambda paths: [*map(_to_path, paths)],
    "output": _output_schema,
    "each": _to_path,
}
