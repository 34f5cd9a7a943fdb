"""The trust capability in a turn: a turn has the lowest trust label of all its inputs. Rules: docs/security.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lemming.capabilities.trust.author_labels import EndorsementLog
from lemming.capabilities.trust.taint_tracker import CallTaintTracker
from lemming.capabilities.trust.trust_prompt_labels import PromptTaintTracker
from lemming.capabilities.trust.trust_settings import (
    AGENT,
    TOOL_LABELS,
    TRUST,
    TrustRule,
    get_minimum_label,
    get_trust_settings,
)
from lemming.capabilities.trust.turn_trust import TurnLabelState
from lemming.ext import (
    AgentSubject,
    Allowed,
    Capability,
    CheckResult,
    CheckSubject,
    DescribeQuery,
    Effect,
    Interception,
    Interceptor,
    LiveEffect,
    OrgQuery,
    Preparation,
    Problem,
    RetentionHold,
    RunTool,
    Seal,
    SendRequest,
    ShowResult,
    StartTool,
    TakeResult,
    ToolReference,
    TurnView,
)
from lemming.kernel.agents import suggest_agent
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import SPEAKING_PROVIDERS, provided
from lemming.libraries.conditions.predicates import iter_fields


class TrustCapability(Capability):
    """Trust tracking of turns, if enabled by the `trust` key of the settings."""

    name = TRUST
    describes = (RetentionHold, ToolReference)
    handles = (RunTool, StartTool, CheckResult, SendRequest, TakeResult, ShowResult, Seal)
    facts = ("trust", "trust_source", "args_trust")
    decides_by_results = False  # it decides nothing; who reads its facts may

    def prepare(self, turn: Preparation) -> Json:
        """Return the initial trust label of the turn and its sources."""
        return turn.get_cache(PromptTaintTracker).record

    def interceptor(self, turn: Preparation | TurnView) -> Interceptor:
        """Return the labels of a turn with trust tracking, and of its prompt."""
        if isinstance(turn, Preparation):
            tracker = turn.get_cache(PromptTaintTracker)
            return Interceptor(self.name, tracker.handles, self.facts, tracker.intercept)
        return Interceptor(self.name, self.handles, self.facts, turn.get_cache(TurnLabels).intercept)

    def intercept(self, effect: LiveEffect, turn: TurnView) -> Interception:
        """Tell gates how far a turn and the arguments of its calls are trusted, and label results and files."""
        tick = turn.live.tick
        if tick is None or not get_trust_settings(tick.tick_context.config.org):
            return None
        return turn.live.get_cache(CallTaintTracker).intercept(effect)

    def describe(self, query: DescribeQuery) -> Iterator[RetentionHold | ToolReference]:
        """Yield the tool patterns in the trust settings, and a hold on persons' entries with an endorsement."""
        if not isinstance(query, OrgQuery):
            return
        if query.kind is ToolReference:
            trust = get_trust_settings(query.config.org)
            yield from map(ToolReference, trust.tools if trust else ())
        elif query.kind is RetentionHold:
            agents, config = query.agents, query.config
            is_endorsement = query.org.get_cache(EndorsementLog).is_endorsement
            yield RetentionHold(
                lambda name: name.author in agents and config.is_person(agents[name.author]) and is_endorsement(name)
            )


class TurnLabels:
    """The trust label of one turn, and the labels of all its outputs."""

    def __init__(self, turn: TurnView) -> None:
        self._turn = turn
        self._label_state = TurnLabelState(turn.snapshot, self._turn.agent.name, self._turn.tick)
        self._publish_label()

    def _publish_label(self) -> None:
        self._turn.report(TRUST, self._label_state.as_json())

    def intercept(self, effect: Effect) -> Interception:
        """Record the label of each result, and label what the model and other turns are shown."""
        match effect:
            case TakeResult() if effect.result.trust:
                self._label_state.record_result(effect.result.trust)
                self._publish_label()
            case ShowResult():
                return Allowed(replace(effect, result={"trust": AGENT, **effect.result}))
            case Seal():
                return self._seal(effect)
        return None

    def _seal(self, effect: Seal) -> Interception:
        label_state = self._label_state
        return (
            yield replace(
                effect,
                files=label_state.label_files(effect.files),
                entries=[*map(label_state.label_entry, effect.entries)],
                results=[*map(label_state.to_kept_result, effect.results)],
            )
        )


VERIFIED = {"http": ("secret", "token"), "folder": ("owner",), "mail": (), "command": ()}
"""Fields verified by the shipped channels (docs/security.md); a plugin's channel may verify anything."""
_LATER = 'set "may_be_absent": true if you add it later'


def find_dead_rules(subject: CheckSubject) -> Iterator[Problem]:
    """Yield rules without an existing author, unreachable rules, and patterns without a matching tool."""
    trust, inventory = get_trust_settings(subject.config.org), subject.names
    if trust is None:
        return
    for number, rule in enumerate(trust.rules):
        pointer = f"/trust/rules/{number}"
        named = [name for name in inventory.agent_names if is_match(name, rule.from_)]
        earlier = [item for item in trust.rules[:number] if not item.when and is_match(rule.from_, item.from_)]
        if not named and not rule.may_be_absent:
            hint = f"{suggest_agent(rule.from_, inventory.agent_names)}; {_LATER}"
            yield Problem(f'there is no agent "{rule.from_}"', pointer=f"{pointer}/from", hint=hint)
        elif rule.when and not rule.may_be_absent and not any(map(inventory.is_channel, named)):
            hint = "remove `when`: only fields verified by a channel can be tested"
            yield Problem(f'"{rule.from_}" is not a channel', pointer=f"{pointer}/when", hint=hint)
        elif (providers := [*map(inventory.agent_provider, named)]) and (
            field := _find_unverified_field(rule, providers)
        ):
            verified_fields = sorted(_list_verified_fields(providers))
            hint = did_you_mean(field, verified_fields) or f"verified fields: {', '.join(verified_fields) or 'none'}"
            message = f'the channel of "{rule.from_}" does not verify "{field}"'
            yield Problem(message, pointer=f"{pointer}/when", hint=hint)
        elif earlier:
            message = f'an earlier rule ("{earlier[0].from_}") already covers these agents'
            yield Problem(message, pointer=f"{pointer}/from", hint="move it up: the first matching rule counts")
    for pattern in () if trust.may_be_absent else trust.tools:
        if pattern not in TOOL_LABELS and (reason := inventory.missing_tool_reason(pattern)):
            yield Problem(reason[0], pointer=f"/trust/tools/{pattern}", hint=f"{reason[1]}; {_LATER}")


def find_clean_turn_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the reasons no turn of an agent can be clean, although the resume demands clean turns."""
    agent, config, trust = subject.agent, subject.config, get_trust_settings(subject.config.org)
    if not (minimum := get_minimum_label(agent)):
        return
    if trust is None:
        hint = 'set "trust": {} in config/org.json, or remove this'
        yield Problem("trust tracking is off", pointer="/trust", hint=hint)
    elif minimum not in trust.order:
        hint = did_you_mean(minimum, trust.order) or f"use one of {', '.join(trust.order)}"
        yield Problem(f'"clean" must be a label of "order", got "{minimum}"', pointer="/trust/clean", hint=hint)
    entry = config.models.get(agent.model.key)
    if entry and entry.provider in SPEAKING_PROVIDERS:
        brain = SPEAKING_PROVIDERS[entry.provider][0]
        message = f"{brain} depend on their memory, which clean turns may hide: they would restart each time"
        yield Problem(message, pointer="/trust", hint="remove this, or choose another model key")
    strategy = agent.turn.strategy
    if strategy and strategy in provided("strategies") and load_provided("strategies", strategy).has_memory:
        message = f"{strategy} depends on its memory, which clean turns may hide: it would restart each time"
        yield Problem(message, pointer="/turn/strategy", hint="remove this, or remove trust.clean")
    if agent.turn.take != "one":
        hint = 'set "take": "one" in turn'
        yield Problem('clean turns require "take": "one"', pointer="/turn", hint=hint)


def _find_unverified_field(rule: TrustRule, providers: Sequence[str]) -> str:
    """Return the first field of a rule's condition not verified by any channel, or an empty text."""
    if not rule.when or not VERIFIED.keys() >= {*providers}:
        return ""
    verified_fields = _list_verified_fields(providers)
    return next((name for name in iter_fields(rule.when) if name not in verified_fields), "")


def _list_verified_fields(providers: Sequence[str]) -> set[str]:
    return {f"verified.{name}" for provider in providers for name in VERIFIED.get(provider, ())}
