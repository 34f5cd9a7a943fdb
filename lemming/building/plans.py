"""Plans as Python objects: steps, decisions, branches, approvals. They write `plan.json`: docs/plans.md.

A step stands for its answer wherever something refers to one: in a text as `{{steps.NAME}}`, in `context`, in
a condition; and for itself where a way leads to it. A way back to a step is its name.

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

from lemming.capabilities.plans.drawing import mermaid
from lemming.capabilities.plans.format import END, FAIL, AgentPlan, plan_in, step_keys
from lemming.capabilities.plans.plan_problems import sound
from lemming.capabilities.plans.referred import find_named_step
from lemming.capabilities.requests.typed import typed_as
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.tools.declared import declared

Json = dict[str, Any]
_FILE = "plan.json"


class Condition:
    """What must hold, as plans and gates write it: `&`, `|` and `~` put conditions together."""

    def __init__(self, plain: Json) -> None:
        self.plain = plain

    def __and__(self, other: Condition) -> Condition:
        return self._with("all", other)

    def __or__(self, other: Condition) -> Condition:
        return self._with("any", other)

    def __invert__(self) -> Condition:
        return Condition({"not": self.plain})

    def __bool__(self) -> bool:
        raise TypeError("a condition holds as the plan runs: put them together with &, | and ~")

    def _with(self, word: str, other: Condition) -> Condition:
        parts = [each for it in (self, other) for each in it.plain.get(word, [it.plain])]
        return Condition({word: parts})


class Known:
    """Something that a run knows, by its path: `{{path}}` in a text, a field in a condition."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getitem__(self, key: str | int) -> Known:
        return Known(f"{self.path}.{key}")

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
        if any(isinstance(it, Known) for it in value):
            raise UsageError(
                f"{self.path} {op} {value[0].path}: a field is held against a value, not a field"
            )
        return Condition({"field": self.path, "op": op, **({"value": value[0]} if value else {})})


class PlanStep(Known):
    """One step of a plan, or a member of a band. `functions` are tools that are Python functions."""

    def __init__(self, plain: Json, functions: Sequence[Callable[..., Any]] = ()) -> None:
        super().__init__(f"steps.{plain['name']}")
        self.name: str = plain["name"]
        self.functions = (*functions,)
        self.plain = {key: plain[key] for key in sorted(plain, key=_place)}


Way = str | PlanStep
Template = str | Known
start, previous, answer = Known("start"), Known("previous"), Known("answer")
keys, memory, last, context = Known("keys"), Known("memory"), Known("last"), Known("context")
item, number = Known("item"), Known("number")
_KEYS = step_keys()


class StepKeys(TypedDict, total=False):
    """What may be said of any step beside what it does; docs/plans.md tells what each means.

    `routes`: conditions, each with where it leads. `choose`: a field of the answer, and where each of its
    values leads. `output`: a JSON Schema, or a type with fields. `each`: a list, for each `item` of which it
    is done.
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
    routes: Sequence[tuple[Condition | Json, Way]]
    choose: tuple[str, Mapping[str, Way]]
    else_: Way
    then: Way
    limit: int
    at_limit: Way
    on_failure: Way


def ask(name: str, agent: str, task: Template, **further: Unpack[StepKeys]) -> PlanStep:
    """Return a step that asks an agent, or a person."""
    return PlanStep({"name": name, "ask": agent, "task": str(task), **_plain(further)})


def approve(
    name: str,
    person: str,
    task: Template,
    *,
    approved: Way = END,
    rejected: Way = FAIL,
    **further: Unpack[StepKeys],
) -> PlanStep:
    """Return a step in which a person decides, `approve` or `reject`, and where each leads."""
    further["choose"] = ("decision", {"approve": approved, "reject": rejected})
    return ask(name, person, task, **further)


def follow(
    name: str,
    agent: str,
    task: Template = "",
    args: Mapping[str, Any] | None = None,
    **further: Unpack[StepKeys],
) -> PlanStep:
    """Return a step that asks an agent whose brain is another plan; `args` are fields that it is given."""
    asked = {**({"task": str(task)} if task else {}), **({"args": _deep(dict(args))} if args else {})}
    return PlanStep({"name": name, "plan": agent, **asked, **_plain(further)})


def call(
    name: str,
    tool: str | Callable[..., Any],
    args: Mapping[str, Any] | None = None,
    **further: Unpack[StepKeys],
) -> PlanStep:
    """Return a step that calls a tool, by its name, or a function."""
    is_function = not isinstance(tool, str)
    named: str = tool if isinstance(tool, str) else _name_of_tool(tool)
    plain = {"name": name, "tool": named, "args": _deep(dict(args or {})), **_plain(further)}
    return PlanStep(plain, [tool] if is_function and callable(tool) else [])


def _name_of_tool(function: Callable[..., Any]) -> str:
    about = declared(function)
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
    **further: Unpack[StepKeys],
) -> PlanStep:
    """Return a step that waits for one of a file, some ticks, a tick and a moment."""
    said = {"file": file, "ticks": ticks, "tick": tick, "time": str(time), "at_most": at_most}
    waited = {key: value for key, value in said.items() if value not in ("", None)}
    if until != "exists":
        waited["until"] = until
    return PlanStep({"name": name, "wait": waited, **_plain(further)})


def parallel(name: str, *members: PlanStep, **further: Unpack[StepKeys]) -> PlanStep:
    """Return a band: its members are done at once, and it is over when all are."""
    band = {"name": name, "parallel": [it.plain for it in members], **_plain(further)}
    return PlanStep(band, [function for it in members for function in it.functions])


def decide(name: str, *routes: tuple[Condition | Json, Way], else_: Way) -> PlanStep:
    """Return a step that only decides: the first way whose condition holds, or `else_`."""
    return PlanStep({"name": name, **_plain({"routes": routes, "else_": else_})})


class PlanFile:
    """A plan as its file has it. `functions` are the tools in it that are Python functions."""

    def __init__(self, plain: Json, functions: Sequence[Callable[..., Any]]) -> None:
        self._plain = plain
        self.functions = tuple(dict.fromkeys(functions))
        self._checked: AgentPlan = sound(plan_in(pretty(plain), _FILE), _FILE)

    def as_json(self) -> Json:
        """Return what the file of the plan holds."""
        return _deep(self._plain)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return pretty(self._plain).decode()

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows of it: a flowchart."""
        return f"```mermaid\n{mermaid(self._checked)}\n```"


def plan(
    *steps: PlanStep,
    answer: Template = "",
    description: str = "",
    max_steps: int | None = None,
    keep_runs: int | None = None,
    proposals: str = "",
    input: Json | type[Any] | None = None,
) -> PlanFile:
    """Return a plan, checked as `lemming validate` checks its file, but for who may do what.

    In `lemming.build` it is an agent, or the word `plan` of one. Raises `ConfigError` with the place in the
    file.
    """
    names = [name for step in steps for name in (step.name, *_list_members(step))]
    if name := find_named_step(str(answer), names):
        hint = f'answer={name}, where that is the step, or answer="{{{{steps.{name}}}}}"'
        raise UsageError(f'answer must refer to the step "{name}", got its name as a text', hint=hint)
    said = {
        "description": description,
        "steps": [step.plain for step in steps],
        "answer": str(answer),
        "max_steps": max_steps,
        "keep_runs": keep_runs,
        "proposals": proposals,
        "input": None if input is None else _output(input),
    }
    plain = {key: value for key, value in said.items() if value not in ("", None)}
    return PlanFile(plain, [function for step in steps for function in step.functions])


def _list_members(step: PlanStep) -> list[str]:
    return [member["name"] for member in step.plain.get("parallel", ())]


def _plain(further: Mapping[str, Any]) -> Json:
    """Return the keys of a step as its file has them."""
    return {(key := word.rstrip("_")): _FORMS.get(key, _deep)(value) for word, value in further.items()}


def _way(to: Way) -> str:
    return to.name if isinstance(to, PlanStep) else to


def _routes(routes: Sequence[tuple[Condition | Json, Way]]) -> list[Json]:
    return [{"when": _deep(condition), "to": _way(to)} for condition, to in routes]


def _choose(choice: tuple[str, Mapping[str, Way]]) -> Json:
    field, ways = choice
    return {"field": field, "to": {value: _way(to) for value, to in ways.items()}}


def _context(paths: Sequence[Template]) -> list[str]:
    return [it.path if isinstance(it, Known) else it for it in paths]


def _each(items: Template) -> str:
    return items.path if isinstance(items, Known) else items


def _output(wanted: Json | type[Any]) -> Json:
    return typed_as(wanted)[0] if isinstance(wanted, type) else wanted


def _deep(value: Any) -> Any:
    """Return a value with what is known of a run as templates, and conditions as files write them."""
    if isinstance(value, Known):
        return str(value)
    if isinstance(value, Condition):
        return _deep(value.plain)
    if isinstance(value, Mapping):
        return {key: _deep(item) for key, item in value.items()}
    return [_deep(item) for item in value] if isinstance(value, list | tuple) else value


def _place(key: str) -> int:
    return _KEYS.index(key) if key in _KEYS else len(_KEYS)


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("then", "else", "at_limit", "on_failure"), _way),
    "routes": _routes,
    "choose": _choose,
    "context": _context,
    "output": _output,
    "each": _each,
}
