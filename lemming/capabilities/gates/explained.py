"""What the gates would say of a call, line by line: nothing is called, and no function is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lemming.capabilities.gates.format import SETTLES, Gate, Rule
from lemming.capabilities.gates.keys import rules_for, whom_to_ask
from lemming.capabilities.gates.looking import Facts, look
from lemming.capabilities.gates.tool_calls import CallGates, heard_by
from lemming.kernel.agents import Agent, Survey, nearest_agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.times.spoken import Expires
from lemming.kernel.journal.verdicts import Then
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import people_in
from lemming.kernel.tools import Tool, toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.places import FunctionBroke

Json = dict[str, Any]


class AskedGate(NamedTuple):
    """What one gate would do: nothing (no `then`), or something, and why; `asks`: a function, a judge."""

    line: str
    gate: Gate
    then: Then | None = None
    why: str = ""
    asks: str = ""


@dataclass(frozen=True)
class Explained:
    """What would become of a call.

    `granted` is why the agent may not call the tool whatever gates say; empty when it may. `then` is what
    settles it, by `line`; "pass" when nothing does. `unless`: the gates whose functions or judges may differ.
    `wrong`: what the tool would say of the arguments. `elsewhere`: what would settle it at other trust.
    """

    agent: str
    tool: str
    tool_class: str
    granted: str
    trust: str
    args: Any
    steps: Sequence[AskedGate] = ()
    then: Then = "pass"
    line: str = ""
    why: str = ""
    args_after: Any = None
    persons: Sequence[str] = ()
    expires: Sequence[Expires] = ()
    wrong: str = ""
    results: Sequence[str] = ()
    elsewhere: Sequence[tuple[str, Then, str]] = ()

    @property
    def unless(self) -> list[AskedGate]:
        """The gates before the one that settles it that ask a function or a judge."""
        return [step for step in self.steps if step.asks]

    @property
    def is_rewritten(self) -> bool:
        """Whether the call would be made with other arguments."""
        return bool(self.args_after != self.args)


def explain_call(
    context: ToolContext, config: Config, survey: Survey, name: str, args: Any, trust: str | None = None
) -> Explained:
    """Return what would become of a call. Raises `UsageError` for a word of trust that is none here."""
    agent = context.agent
    trusted = config.org.further.get("trust")
    words = [*trusted.order] if trusted else []
    _require_word(trust, words)
    tool = toolset_of(context.settings, context.org).of(agent.name).get(name)
    granted = _why_refused(context, name)
    word = trust or _base(context, config, survey)
    told = Explained(agent.name, name, tool.tool_class if tool else "", granted, word, args, args_after=args)
    if tool is None or granted:
        return told
    explained = _looked_at(told, context, config, survey, tool)
    others = [] if trust else [it for it in words if it != word]
    elsewhere = [_looked_at(replace(told, trust=it), context, config, survey, tool) for it in others]
    differing = ((it.trust, it.then, it.line) for it in elsewhere if it.line != explained.line)
    return replace(explained, elsewhere=[*differing], wrong=_wrong(tool, explained.args_after))


def context_of(org: Organisation, config: Config, agent: Agent, now: str) -> ToolContext:
    """Return what a tool would be told if the agent called it now."""
    return ToolContext(
        agent=agent,
        org=org,
        settings=config.org,
        now=now,
        tick=load_tick(org),
        began_at=now,
    )


def _looked_at(
    told: Explained, context: ToolContext, config: Config, survey: Survey, tool: Tool
) -> Explained:
    rules = rules_for(context.agent, config.org)
    gates = CallGates([], [], context.agent, config.org, context.tick, told.trust)
    call = ToolCall(told.tool, told.args)
    after, steps = told.args, list[AskedGate]()
    facts = gates.facts_of(call, tool, context)
    at_calls = [it for it in rules if it.gate.at == "call" and _is_for(it.gate, tool)]
    asked = gates.placed(at_calls, tool, context.base)
    for step, after in _steps(asked, call, facts):  # noqa: B007 - the last is what counts
        steps.append(step)
    last = steps[-1] if steps and steps[-1].then in SETTLES else None
    asking = [step for step in steps if step.then == "ask"]
    persons: Sequence[str] = ()
    expires: Sequence[Expires] = ()
    if asking and (last is None or last.then == "pass"):
        last = asking[0]
        named, expires = heard_by([step.gate for step in asking])
        if named != frozenset():
            persons = whom_to_ask(people_in(survey, config), survey.agents, told.agent, named or ())
    results = [it.line for it in rules if it.gate.at == "result" and _is_for(it.gate, tool)]
    return replace(
        told,
        steps=steps,
        then=(last.then if last else None) or "pass",
        line=last.line if last else "",
        why=last.why if last else "",
        args_after=after,
        persons=persons,
        expires=expires,
        results=results,
    )


def _is_for(gate: Gate, tool: Tool) -> bool:
    return gate.concerns_tool(tool.name, tool.tool_class)


def _steps(rules: Iterable[Rule], call: ToolCall, facts: Facts) -> Iterator[tuple[AskedGate, Any]]:
    """Yield what each gate would do, with the arguments after it, up to the one that settles it."""
    args = call.args
    for rule in rules:
        asks = _Asks()
        # One that lets pass says nothing: asked as one that warns, it tells whether it concerns the call.
        gate = replace(rule.gate, then="warn") if rule.gate.then == "pass" else rule.gate
        looked = look([Rule(rule.line, gate)], args, facts, about=call.tool, check=asks, judge=asks.judge)
        if asks.name:
            yield AskedGate(rule.line, rule.gate, asks=asks.name), args
            continue
        if not looked.verdicts:
            yield AskedGate(rule.line, rule.gate), args
            continue
        said = looked.last
        then: Then = "pass" if rule.gate.then == "pass" and said.then == "warn" else said.then
        args = looked.content
        yield AskedGate(rule.line, rule.gate, then, said.why), args
        if then in SETTLES:
            return


class _Asks:
    """Stands for the functions and judges of an organisation: notes who is asked, and asks nobody."""

    name = ""

    def __call__(self, name: str, seen: Json) -> None:
        """Note a function. Raises `FunctionBroke`, as it has nothing to say."""
        self.name = f"the function {name}"
        raise FunctionBroke(f"{self.name} is not asked here")

    def judge(self, rule: Rule, seen: Json) -> None:
        """Note a judge. Raises `FunctionBroke`, as it has nothing to say."""
        self.name = f"the judge {rule.gate.by}"
        raise FunctionBroke(f"{self.name} is not asked here")


def _require_word(trust: str | None, words: list[str]) -> None:
    if trust is not None and not words:
        hint = '"trust": {} in config/org.json has the engine track it (`lemming gates standard`)'
        raise UsageError("nobody tracks here how far texts are trusted", hint=hint)
    if trust is not None and trust not in words:
        hint = nearest(trust, words) or f"the words are {', '.join(words)}"
        raise UsageError(f'"{trust}" is no word of trust here', hint=hint)


def _why_refused(context: ToolContext, name: str) -> str:
    try:
        toolset_of(context.settings, context.org).require(name, context.agent, context.settings)
    except LemmingError as error:
        return str(error)
    return ""


def _wrong(tool: Tool, args: Any) -> str:
    if not isinstance(args, dict):
        return "args must be an object"
    try:
        tool.check(args)
    except LemmingError as error:
        return error.message
    return ""


def _base(context: ToolContext, config: Config, survey: Survey) -> str:
    """Return how far a turn is trusted that was shown nothing from below; empty where nobody tracks it."""
    if "trust" not in config.org.further:
        return ""
    from lemming.capabilities.trust.authors import Authors

    authors = Authors(context.org, config, survey.agents, context.tick)
    return authors.of_author(context.agent.name)


def find_in(survey: Survey, name: str) -> Agent:
    """Return an agent; raise `UsageError` with the nearest name, or `ConfigError` of a broken resume."""
    if name in survey.broken:
        raise survey.broken[name]
    if name not in survey.agents:
        raise UsageError(f'there is no agent "{name}"', hint=nearest_agent(name, [*survey.agents]))
    return survey.agents[name]
