"""Hooks of a turn, in the order of their calls.

    due  ->  effects of the preparation  ->  prepare  ->  given.<name>, recorded before any model call
    ->  effects of the turn  ->  intercept, reduce of the capabilities that handle their types

A turn has interceptors only of capabilities with a recorded snapshot or with a part in the recorded inputs.
The record alone decides, so a turn that is resumed, replayed or explained has the same interceptors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.plugins.capability_errors import PAGE, capability_error, find_place
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.turn.descriptions import DescribeQuery
from lemming.kernel.turn.effect_chain import Interceptor
from lemming.kernel.turn.effect_guard import is_plugin
from lemming.kernel.turn.preparation import Due, NoSettings, Preparation, RunTurn
from lemming.kernel.turn.turn_effects import Effect, Event, Interception, has_turn_effects
from lemming.kernel.turn.turn_view import TurnView


@accept_old_names
class Capability:
    """Entry point of a capability for the engine: one stateless value per process.

    `name` is the name in the table, in records and in ledgers. `can_begin`: the capability may call a model, or
    show content, before the turn's own first call, as a plugin's always may.

    For a plugin, `org_settings_type` is the dataclass of the block in `config/org.json`, `agent_settings_type` the
    dataclass of the block in a resume, `after` names the capabilities that run before it, and `provides` holds its
    tools, providers, strategies, commands, facts and checks (`kernel.plugins.capability_spec`). `describes` lists the kinds that
    `describe` yields.
    """

    name: str
    can_begin: bool = False
    org_settings_type: type[Any] = NoSettings
    agent_settings_type: type[Any] = NoSettings
    after: tuple[str, ...] = ()
    provides: Mapping[str, Mapping[str, Any]] = {}
    handles: tuple[type[Effect], ...] = ()
    """Types of effects that `intercept` gets."""
    describes: tuple[type[Any], ...] = ()
    """Kinds of descriptions that `describe` yields."""
    turn_policy: TurnPolicy | None = None
    """Defaults for agents whose model key names a provider of the capability."""
    facts: tuple[str, ...] = ()
    """Facts that `intercept` may write into effects."""
    reads: tuple[str, ...] = ()
    """Facts of others that `intercept` reads: of live effects, it comes after the capabilities that write them."""
    asks_persons: bool = False
    """True if `intercept` may yield an `AskPerson`: approvals take part in the turns of the agents that use it."""
    decides_by_results: bool = True
    """False if decisions about a call do not depend on results of other calls: neighbours may then run in parallel."""
    joins_later: bool = False
    """True if `intercept` gets the live effects of all turns of a tick, also of turns that began without it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "describe" in vars(cls) and not cls.describes:
            raise TypeError(f"{cls.__name__}.describes must list the kinds that describe yields, got none")

    @staticmethod
    def check_declaration(capability: Capability) -> None:
        """Raise `TypeError` for a misspelled hook, a hook with other parameters, or a wrong attribute."""
        from difflib import get_close_matches  # only imported with a plugin

        kind, base = type(capability), Capability
        own_classes = [item for item in reversed(kind.__mro__) if item not in base.__mro__]
        members = {name: value for item in own_classes for name, value in vars(item).items()}
        public = [name for name in vars(base) if not name.startswith("_")] + ["name"]
        for name, value in members.items():
            if name.startswith("_") or name in public:
                continue
            if matches := get_close_matches(name, public, 1, 0.8):
                raise _declaration_error(kind, f"has no hook {name!r}: did you mean {matches[0]!r}?", value)
        if not isinstance(getattr(capability, "name", None), str):
            raise _declaration_error(kind, 'must have a name: write `name = "..."` in the class')
        for name in ("handles", "after", "facts", "reads", "describes"):
            if not isinstance(value := getattr(capability, name), (tuple, list)):
                text = value.__name__ if isinstance(value, type) else repr(value)
                raise _declaration_error(kind, f"must have a tuple as `{name}`, got {text}: write `({text},)`")
        for effect in capability.handles:
            if not (isinstance(effect, type) and issubclass(effect, Effect)):
                raise _declaration_error(kind, f"must list classes of effects in `handles`, got {effect!r}")
        _check_parameters(kind, base, members)
        overrides = members.keys() & {"intercept", "interceptor"}
        if overrides == {"intercept"} and not capability.handles:
            raise _declaration_error(kind, "has `intercept` and no `handles`: list the effects that it gets")
        if capability.handles and not overrides and not (members.keys() & {"wrap_turn", "reduce"}):
            raise _declaration_error(kind, "has `handles` and no `intercept`: the hook that gets these effects")

    def due(self, turn: Preparation) -> Iterable[Due]:
        """Yield reasons for a turn, requests that wait or continue, and files whose change is news.

        Called first, also for agents without news. On a `LemmingError` the turn fails.
        """
        return ()

    def prepare(self, turn: Preparation) -> Json | None:
        """Return the snapshot of a turn, recorded as `given.<name>`, or None to take no part in the turn.

        Called last before the turn: the rest of it uses this record alone, and reads no file. The default is an
        empty snapshot for a capability with a hook in the turn.
        """
        return {} if has_turn_effects(self.handles) or self.wraps_turns or self.reduces_events else None

    def intercept(self, effect: Any, turn: Any) -> Interception:
        """Return the outcome of an effect, None to take no part, or a generator that yields effects.

        `outcome = yield effect`, changed or not, passes the effect on to the rest of the chain. `turn` is a
        `Preparation` for the effects of a turn in preparation, which may read files, and a `TurnView` for all others.
        """
        return None

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn: call `run`, and return the end of the turn.

        Code before the call runs before the model's first question, and may end the turn instead. `run(steps)` runs
        the steps of a strategy in place of the rest. Code after the call may run more steps.
        """
        return run()

    def reduce(self, state: Json, event: Event, turn: TurnView) -> Json:
        """Return the capability's state in the ledger after an event of a turn. Called for the events that count.

        They are the events of effects of the types in `handles`: all of them if the turn's files are written, of a failed
        turn only calls and answers of models.
        """
        return state

    @cached_property
    def may_ask(self) -> bool:
        """True if `intercept` may ask persons: of a capability that ships, its gates say so."""
        return self.asks_persons or self.name in LISTED

    @property
    def wraps_turns(self) -> bool:
        """True if `wrap_turn` is overridden."""
        return type(self).wrap_turn is not Capability.wrap_turn

    @property
    def reduces_events(self) -> bool:
        """True if `reduce` is overridden."""
        return type(self).reduce is not Capability.reduce

    def interceptor(self, turn: Preparation | TurnView) -> Interceptor:
        """Return the part of the effect chain of a turn, in preparation or begun. Overridden where it depends on the turn."""
        return Interceptor(self.name, self.handles, self.facts, partial(self.intercept, turn=turn), self.may_ask)

    def describe(self, query: DescribeQuery) -> Iterator[Any]:
        """Yield descriptions of the kind that an `OrgQuery` or a `StateQuery` asks for, one of `describes`. Read-only."""
        yield from ()


def make_interceptor(capability: Capability, turn: Preparation | TurnView) -> Interceptor:
    """Return the interceptor of a capability for a turn.

    Raises:
        HookError: That of a plugin is none, or claims what its class does not declare.
    """
    link = capability.interceptor(turn)
    if not is_plugin(capability.name):
        return link
    if type(link) is not Interceptor:
        got = f"must return an Interceptor, got {type(link).__name__}: `return super().interceptor(turn)`"
        raise capability_error(capability.name, capability.interceptor, got)
    is_own = link.name == capability.name and {*link.facts} <= {*capability.facts}
    if not is_own or (link.may_ask and not capability.may_ask):
        keep = (
            "must keep the name, the facts and `asks_persons` of its class: `super().interceptor(turn)._replace(...)`"
        )
        raise capability_error(capability.name, capability.interceptor, keep)
    return link


def _check_parameters(kind: type, base: type, members: Mapping[str, Any]) -> None:
    from inspect import isfunction, signature

    for name in members.keys() & vars(base).keys():
        function, original = members[name], vars(base)[name]
        if name.startswith("_") or not (isfunction(function) and isfunction(original)):
            continue
        parameters = [*signature(original).parameters]
        keywords = {"turn": None} if name == "intercept" else {}  # the kernel passes it by name
        try:
            signature(function).bind(*parameters[: len(parameters) - len(keywords)], **keywords)
        except TypeError as error:
            declaration = f"{name}({', '.join(parameters)})"
            raise _declaration_error(kind, f"must declare {declaration}: {error}", function) from error


def _declaration_error(kind: type, problem: str, value: Any = None) -> TypeError:
    return TypeError(f"{kind.__module__}.{kind.__qualname__}{find_place(value)} {problem}; see {PAGE}")
