"""Gates at the calls of a turn: what may be called with what, and what may be shown of what it gave. Live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.file_arguments import as_opened, opened_in_gate, places_among
from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.keys import rules_for
from lemming.capabilities.gates.looking import Check, Facts, Looked, look, nobody_judged, rules_at
from lemming.capabilities.gates.path_conditions import placed
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import LemmingError, ToolError
from lemming.kernel.base.redaction.secrets import redact_foreign
from lemming.kernel.base.times.spoken import Expires
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.org.config import Org
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.tick.edge import tried
from lemming.kernel.tools import EngineTool, Tool, ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.places import Asking, Found, Hold, Passed, Trusted


class CannotTell(ToolError):
    """A call breaks as it is planned, so nobody can tell what it would change: it is not made."""


@dataclass
class CallGates:
    """The gates at an agent's calls, and at what they give.

    `trust`: how far its turn is trusted by now, at a result how far it will be; empty: nobody tracks that.
    """

    calls: Sequence[Rule]
    results: Sequence[Rule]
    agent: Agent
    settings: Org
    tick: int
    trust: str = ""
    facts_of_args: Callable[[Any], dict[str, Any]] = lambda _: {}

    @classmethod
    def of(cls, agent: Agent, settings: Org, tick: int) -> CallGates | None:
        """Return the gates of an agent's calls; None where there are none."""
        rules = rules_for(agent, settings)
        calls = rules_at(rules, "call")
        results = tuple(rule for rule in rules_at(rules, "result") if not rule.gate.by)  # those the turn asks
        return cls(calls, results, agent, settings, tick) if calls or results else None

    def before(
        self, call: ToolCall, tool: Tool, context: ToolContext, trusted: Trusted, hold: Hold
    ) -> Passed | ToolResult:
        """Return a call as it may be made, or the result that it has because it may not.

        Where gates want approval for it, it is asked for once, for all of them, and for the call as those
        behind them rewrite it.
        """
        self.trust, self.facts_of_args = trusted.word, trusted.facts_of
        try:
            looked = self.look_at_call(call, tool, context)
        except CannotTell as error:
            return ToolResult(False, redact_foreign(str(error)))
        if looked.then not in ("pass", "ask"):
            return self.refused(looked)
        seen = call._replace(args=looked.content)
        if looked.passes:
            return Passed(seen, looked.verdicts, {})
        held = hold(seen, self._asking(looked.asks, trusted))
        if held.result is not None:
            return replace(held.result, verdicts=tuple(looked.verdicts))
        return Passed(seen, [it for it in looked.verdicts if it.then != "ask"], held.kept)

    def _asking(self, verdicts: Sequence[GateVerdict], trusted: Trusted) -> Asking:
        """Return what gates want together: one person's approval, whom each of them would hear."""
        lines = [it.line for it in verdicts]
        shown = f"this turn was shown {trusted.word} text: {trusted.source}" if trusted.source else ""
        why = "; ".join(dict.fromkeys(filter(None, (*(it.why for it in verdicts), shown))))
        persons, expires = heard_by([rule.gate for rule in self.calls if rule.line in lines])
        return Asking(lines[0], why, persons, expires, lines[1:])

    def look_at_call(self, call: ToolCall, tool: Tool, context: ToolContext) -> Looked:
        """Have the gates look at a call before it is made; what passes are its arguments."""
        concerned = [it for it in self.calls if it.gate.concerns_tool(call.tool, tool.tool_class)]
        rules = self.placed(concerned, tool, context.base)
        facts = self.facts_of(call, tool, context) if rules else dict

        def judged(rule: Rule, _: dict[str, Any]) -> Found | None:  # before, within the turn
            why = (call.judged or {}).get(rule.line)
            return nobody_judged(rule, _) if why is None else Found(why) if why else None

        return look(rules, call.args, facts, about=call.tool, check=self._ask, judge=judged)

    def facts_of(self, call: ToolCall, tool: Tool, context: ToolContext) -> Facts:
        """Return what conditions see of a call, for any arguments that gates make of it."""

        def changes_for(args: Any) -> dict[str, Any]:
            changes = planned_changes(tool, args, context)
            return {} if changes is None else self._changes(changes)

        planned = changes_for(call.args)

        def facts(args: Any) -> dict[str, Any]:
            # What planning reads is not read again unless a gate has changed the arguments.
            told = planned if args == call.args else changes_for(args)
            origin = self.facts_of_args(args) or self._as_the_turn(args)
            opened = self._args_as_opened(args, tool, context.base)
            return {**self._facts(call, tool), **told, **origin, "args": opened}

        return facts

    def _as_the_turn(self, args: Any) -> dict[str, Any]:
        """Return the trust labels of arguments of which nothing else is known."""
        named = args if isinstance(args, dict) else {}
        labels = {"args_trust": dict.fromkeys(named, self.trust), "args_lowest": self.trust}
        return labels if self.trust else {}

    def after(
        self, call: ToolCall, tool: Tool, base: Path, trusted: Trusted, result: ToolResult
    ) -> ToolResult:
        """Have the gates look at the whole of what a call gave, before it is cut."""
        self.trust = trusted.word
        args = self._args_as_opened(call.args, tool, base) if self.results else call.args

        def facts(output: Any) -> dict[str, Any]:
            said = {"args": args, "success": result.success, "outcome": result.outcome}
            return {**self._facts(call, tool), **said, "output": output}

        rules = self.placed(self.results, tool, base)
        looked = look(rules, result.output, facts, about=call.tool, check=self._ask)
        output = looked.content if looked.passes else f"[withheld: {looked.told()}]"
        return replace(
            result,
            output=output,
            verdicts=(*result.verdicts, *looked.verdicts),
            on_error="stop" if looked.then == "stop" else result.on_error,
            success=result.success and looked.then != "stop",
        )

    @staticmethod
    def refused(looked: Looked) -> ToolResult:
        """Return the result of a call that gates do not let pass."""
        return ToolResult(
            False,
            looked.told(),
            outcome="refused",
            on_error="stop" if looked.then == "stop" else "return",
            verdicts=tuple(looked.verdicts),
        )

    def placed(self, rules: Sequence[Rule], tool: Tool, base: Path) -> Sequence[Rule]:
        """Return gates as they look at the calls of a tool: the paths that they name are places too."""
        as_place = partial(opened_in_gate, agent_name=self.agent.name, base=base)
        return placed(rules, tool.place_arguments, as_place)

    def _args_as_opened(self, args: Any, tool: Tool, base: Path) -> Any:
        """Return arguments as gates see them: a path by the place that is opened."""
        named = tool.place_arguments
        return as_opened(args, places_among(named, tool.parameters), self.agent.name, base) if named else args

    def _facts(self, call: ToolCall, tool: Tool) -> dict[str, Any]:
        told = {"agent": self.agent.name, "tick": self.tick, "tool": call.tool, "class": tool.tool_class}
        return {**told, "trust": self.trust} if self.trust else told

    def _changes(self, changes: Sequence[FileEffect]) -> dict[str, Any]:
        """Return what conditions see of what a call would change; `own`: the agent's own files, all of it."""
        name, places = self.agent.name, [effect.place for effect in changes]
        home = (f"{paths.workspace_folder(name)}/", f"{paths.memory_folder(name)}/")
        return {"writes": places, "own": all(place.startswith(home) for place in places)}

    @property
    def _ask(self) -> Check:
        return asking(tuple(self.settings.plugins))


def planned_changes(tool: Tool, args: Any, context: ToolContext) -> tuple[FileEffect, ...] | None:
    """Return what a call of a tool of the engine would change; None where nobody can tell beforehand."""
    if not (isinstance(tool, EngineTool) and tool.is_planned):
        return None
    found = tried(lambda: tool.plan(context, **tool.check(args)))
    if isinstance(found, LemmingError):
        return ()  # the call will fail for the same reason
    if isinstance(found, Exception):
        raise CannotTell(f"{tool.name} failed: {words_of(found)}") from found
    return found.effects


def heard_by(gates: Sequence[Gate]) -> tuple[frozenset[str] | None, tuple[Expires, ...]]:
    """Return the persons whom each of these gates would hear (None: any), and how long each waits."""
    named = [frozenset(gate.persons) for gate in gates if gate.persons]
    expires = tuple(gate.expires for gate in gates if gate.expires is not None)
    # Who approves has to be named by each of the gates that ask.
    return (frozenset.intersection(*named) if named else None), expires
