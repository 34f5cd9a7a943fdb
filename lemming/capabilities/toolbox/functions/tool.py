"""A function as a tool: what it says of itself, where it can be found again, and how its calls are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions import keeping
from lemming.capabilities.toolbox.functions.body import Callee, Done, of_call, run
from lemming.capabilities.toolbox.functions.docstrings import described
from lemming.capabilities.toolbox.functions.kept_values import may_share_values
from lemming.capabilities.toolbox.functions.loading import Home, home_of, place_in_code
from lemming.capabilities.toolbox.functions.signature import BadFunction, Signature
from lemming.capabilities.toolbox.functions.wire import request_of
from lemming.capabilities.toolbox.functions.workers import FunctionWorkers
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, InvalidArguments
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.paths import place_of
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Org
from lemming.kernel.tools import ANYWHERE, NOWHERE, Places, Tool, ToolResult
from lemming.kernel.tools.arguments import arguments_hint
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.tools.declared import TOOL_NAME, TOOL_NAME_RULE, declared


class FunctionTool(Tool):
    """A tool that a function is, by what `@tool` said of it.

    `base` is the organisation whose file the function is in, and `home` where another process finds it; a
    function without a home runs on a thread. Raises `BadFunction` for one that cannot be a tool.
    """

    stages_files = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        base: Path | None = None,
        home: Home | None = None,
    ) -> None:
        about = declared(function)
        assert about, "a function with @tool"
        self.function, self.base, self.declared = function, base, about
        self.where = place_in_code(function, base)
        self.name = about.name or function.__name__
        if not TOOL_NAME.match(self.name):
            raise BadFunction(f"{self.name!r}: {TOOL_NAME_RULE}", where=self.where)
        told = described(function)
        self.signature = Signature(function, told.parameters, self.where)
        self.description = about.description or told.text or self.name.replace("_", " ")
        self.tool_class, self.repeatable = about.tool_class, about.repeatable
        self.timeout_s, self.on_error = about.timeout_s, about.on_error
        self.attempts = about.attempts if about.repeatable else 1
        self.success_is_news = about.success_is_news
        # What one call keeps is for the next one: such calls run one after the other.
        is_alone = about.cache_ticks > 0 or may_share_values(function, self.signature.contexts)
        self.parallel = about.parallel and not is_alone
        self.is_independent = about.independent or about.writes is not None
        self.home = (home or home_of(function)) if about.process else None
        self.keeps_deadline = self.home is not None
        self.own_memories = self._own_memories()
        self.place_arguments = self._place_arguments()

    def _place_arguments(self) -> Sequence[str]:
        named = [*self.parameters.get("properties", {})]
        for name in self.declared.places:
            if name not in named:
                what = f'places of {self.name} names "{name}", which is no parameter of it'
                hint = nearest(name, named) or f"its parameters: {', '.join(named) or 'none'}"
                raise BadFunction(what, where=self.where, hint=hint)
        return tuple(self.declared.places)

    def _own_memories(self) -> Sequence[str]:
        kept = [f"state.{self.name}"] if self.signature.contexts else []
        return [*kept, keeping.key_of(self.name)] if self.declared.cache_ticks else kept

    @property
    def defined_by(self) -> Any:
        """The function."""
        return self.function

    @property
    def origin(self) -> str:
        """Where it is defined: `file:line`."""
        return self.where

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature."""
        return self.signature.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as they are, if they fit; raise `InvalidArguments` that names each wrong one.

        They become the function's own types where it runs.
        """
        self.checked(arguments)
        return arguments

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function's own types; raise `InvalidArguments`."""
        try:
            return self.signature.check(arguments)
        except ValueError as error:
            hint = arguments_hint(self.parameters, arguments)
            raise InvalidArguments(f"{self.name}: {error}", hint=hint) from error

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return what its calls may look at: what it said, else anything, unless it is independent."""
        if self.declared.reads is not None:
            return self._places(agent, self.declared.reads, "reads")
        return NOWHERE if self.declared.independent else {ANYWHERE: f"tool {self.name}, which has no reads"}

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return what its calls may change: what it said, else anything, unless it is independent."""
        if self.declared.writes is not None:
            return self._places(agent, self.declared.writes, "writes")
        return super().writes(agent, settings)

    def _places(self, agent: Agent, said: Sequence[str], which: str) -> Places:
        return {place_of(agent.name, each): f"tool {self.name} {which} {each}" for each in said}

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Call the function itself; it may not want a context."""
        if self.signature.contexts:
            raise ConfigError(f"{self.name} needs a context: `lemming tools call {self.name}`")
        return ToolResult(True, str(self.function(*args, **kwargs)))

    @property
    def callee(self) -> Callee:
        """The function as its calls need it."""
        contexts, attempts = self.signature.contexts, self.attempts
        return Callee(self.function, self.name, contexts, attempts, self.base, self.checked)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call, in a process of its own where that can be; give the kept result where there is one."""
        context = of_call(context, self.name)
        ticks = self.declared.cache_ticks
        if ticks and (kept := keeping.kept_result(context, arguments, ticks)) is not None:
            return kept
        done = self._done(context, arguments)
        _log(self, context, done)
        result = keeping.with_effects(self, context, done)
        if ticks and result.success:
            result = keeping.keep(context, arguments, result, ticks)
        return result if result.success else replace(result, on_error=self.on_error)

    def _done(self, context: ToolContext, arguments: dict[str, Any]) -> Done:
        if self.home is None:
            return run(self.callee, arguments, context)
        request = request_of(self.home, self.callee, arguments, context)
        return context.org.own(FunctionWorkers).call(self, request, context)

    def require_writable(self, context: ToolContext, effect: Any) -> None:
        """Raise unless an effect is a memory of the agent, or a result that is kept whole."""
        keeping.require_writable(context, effect, caller=self.name)


def _log(tool: FunctionTool, context: ToolContext, done: Done) -> None:
    """Write what a call said, and the steps of what went wrong in it, into the engine's log."""
    if not done.wanted.lines and not done.trace:
        return
    facts: dict[str, Any] = {"tick": context.tick, "agent": context.agent.name, "tool": tool.name}
    log = EngineLog(context.base)
    for level, said, told in done.wanted.lines:
        write = log.warning if level == "warning" else log.info
        write("tool_said", **redact_json({**told, **facts, "said": said}))
    if done.trace:
        log.warning("tool_failed", **facts, **redact_json({"why": done.result.output, "steps": done.trace}))
