"""Judges that gates ask about what a turn writes, its calls, and what they gave: questions of the turn.

Who judges is recorded with the gate as the turn begins. What gives no verdict does not pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.capabilities.gates.file_arguments import (
    as_written,
    is_any_absolute,
    places_among,
    written_in_gate,
)
from lemming.capabilities.gates.foresee import may_hold
from lemming.capabilities.gates.format import GATES, Gate, Rule
from lemming.capabilities.gates.looking import AskingStopped, look
from lemming.capabilities.gates.path_conditions import placed
from lemming.capabilities.judges.judge import (
    NoVerdict,
    files_of_judge,
    judge_of_gate,
    question_of_gate,
    recorded_judge,
    verdict_of,
)
from lemming.capabilities.judges.settings import JudgedBy
from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import Found, FunctionBroke

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft

Json = dict[str, Any]


def recorded_rules(now: Surroundings, agent: Agent, rules: Iterable[Rule]) -> list[Json]:
    """Return the gates that a turn itself asks, as its record has them, with their judges."""
    allowed = now.toolset.allowed(agent, now.config.org).values()
    told = []
    for rule in rules:
        if rule.gate.at != "out" and not rule.gate.by:
            continue
        plain: Json = rule.as_json()
        if rule.gate.by:
            plain["judge"] = judge_of_gate(now, agent, judge_of(rule.gate), rule.line, {})
        if rule.gate.at != "out":
            concerned = [it for it in allowed if rule.gate.concerns_tool(it.name, it.tool_class)]
            plain["tools"] = {tool.name: tool.tool_class for tool in concerned}
            with_places = [it for it in concerned if it.place_arguments]
            if with_places and rule.gate.by:
                plain["places"] = {
                    it.name: places_among(it.place_arguments, it.parameters) for it in with_places
                }
        told.append(plain)
    return told


def files_of_judges(now: Surroundings, rules: Iterable[Rule]) -> list[str]:
    """Return the files that tell the judges of these gates what to go by."""
    return [file for rule in rules for file in files_of_judge(now, judge_of(rule.gate), None)]


def judge_of(gate: Gate) -> JudgedBy:
    """Return who judges for a gate, and by what."""
    return JudgedBy(by=gate.by, policy=gate.policy)


class GateJudges:
    """The judges of one turn's gates, by the gates' lines."""

    def __init__(self, draft: Draft, rules: Mapping[str, Gate]) -> None:
        self._draft = draft
        recorded = draft.inputs.given[GATES]["rules"]
        self._judges = {
            plain["line"]: recorded_judge(plain["judge"]) for plain in recorded if "judge" in plain
        }
        at_tools = [plain for plain in recorded if "tools" in plain]
        self._tools: dict[str, dict[str, str]] = {plain["line"]: plain["tools"] for plain in at_tools}
        self._places: dict[str, Json] = {plain["line"]: plain.get("places", {}) for plain in at_tools}
        self._rules = [Rule(plain["line"], rules[plain["line"]]) for plain in at_tools]

    def ask(self, rule: Rule, seen: Json) -> Found | None:
        """Ask a gate's judge about what it sees; raise `FunctionBroke` where there is no verdict."""
        draft, judge = self._draft, self._judges[rule.line]
        try:
            messages = question_of_gate(judge, draft.inputs.agent.name, draft.inputs.tick, seen)
            passes, reason = verdict_of(draft, judge, messages)
        except NoVerdict as error:
            raise FunctionBroke(f"{judge.by}: {error}") from error
        except Exception as error:  # the engine is to end, or a record does
            raise AskingStopped from error
        return None if passes else Found(f"{judge.by}: {reason}"[:500])

    def judged_call(self, call: ToolCall) -> ToolCall:
        """Return a call with what judges say of it; the gates act by it as it is their turn."""
        said: dict[str, str] = {}

        def judge(rule: Rule, seen: Json) -> Found | None:
            found = self.ask(rule, seen)
            said[rule.line] = found.why if found else ""
            return found

        for rule in self._concerned(call, "call"):
            facts = partial(self._of_call, call, rule)
            look([rule], call.args, facts, about=call.tool, judge=judge)
        return call._replace(judged=said) if said else call

    def judged_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return what a call gave as it may be shown."""
        rules = [*self._concerned(call, "result")]
        if not rules:
            return result

        def facts(output: Any) -> Json:
            said = {"success": result.success, "outcome": result.outcome, "output": output}
            return {**self._of_call(call, rules[0], call.args), **said}

        looked = look(rules, result.output, facts, about=call.tool, judge=self.ask)
        stops = looked.then == "stop"
        return replace(
            result,
            output=looked.content if looked.passes else f"[withheld: {looked.told()}]",
            verdicts=(*result.verdicts, *looked.verdicts),
            on_error="stop" if stops else result.on_error,
            success=result.success and not stops,
        )

    def _of_call(self, call: ToolCall, rule: Rule, args: Any) -> Json:
        places = self._places[rule.line].get(call.tool, {})
        origin: Json = {}
        if word := self._draft.trust:
            from lemming.capabilities.trust.origins import args_trust, low_values  # it is tracked: it is here

            origin = args_trust(args, word, low_values(self._draft.inputs.given["trust"], word))
        return {**self._facts(call, rule), **origin, "args": as_written(args, places, self._agent)}

    def _concerned(self, call: ToolCall, at: str) -> Iterator[Rule]:
        """Yield the gates whose judges may have to be asked.

        What an absolute path leads to is not for a turn to look up: by it no condition keeps a judge out.
        """
        for rule in self._rules:
            if rule.gate.at != at or call.tool not in self._tools[rule.line]:
                continue
            places = self._places[rule.line].get(call.tool, {})
            if rule.gate.when is None or not is_any_absolute(call.args, places):
                yield from placed([rule], places, partial(written_in_gate, agent_name=self._agent))
            elif may_hold(rule.gate.when, self._facts(call, rule)) is not False:
                yield rule._replace(gate=replace(rule.gate, when=None))

    @property
    def _agent(self) -> str:
        return self._draft.inputs.agent.name

    def _facts(self, call: ToolCall, rule: Rule) -> Json:
        draft, trust = self._draft, self._draft.trust
        told = {"agent": draft.inputs.agent.name, "tick": draft.inputs.tick, "tool": call.tool}
        told["class"] = self._tools[rule.line][call.tool]
        return {**told, "trust": trust} if trust else told
