"""The trust capability in a turn: a turn has the lowest trust label of all its inputs.

Rules: docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lemming.capabilities.trust.author_labels import make_labeler
from lemming.capabilities.trust.dead_trust_rules import validate_clean_turns, validate_trust
from lemming.capabilities.trust.endorsements import EndorsementLog
from lemming.capabilities.trust.taint_tracker import CallTaintTracker
from lemming.capabilities.trust.trust_levels import TRUST
from lemming.capabilities.trust.trust_prompt_labels import PromptTaintTracker
from lemming.capabilities.trust.trust_settings import get_trust_settings
from lemming.capabilities.trust.turn_trust import TurnLabelState
from lemming.ext import (
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
    ReferenceCheck,
    RetentionHold,
    RunTool,
    Seal,
    SendRequest,
    ShowResult,
    StartTool,
    TakeResult,
    TickContext,
    ToolReference,
    TurnView,
    to_problems,
)
from lemming.kernel.files.field_types import Json
from lemming.kernel.tick.firing_plan import is_person_agent
from lemming.kernel.turn.guards import TrustLabeler


class TrustCapability(Capability):
    """Trust tracking of turns, if enabled by the `trust` key of the settings."""

    name = TRUST
    describes = (RetentionHold, ToolReference)
    handles = (RunTool, StartTool, CheckResult, SendRequest, TakeResult, ShowResult, Seal)
    facts = ("trust", "trust_source", "args_trust")
    decides_by_results = False  # it decides nothing; who reads its facts may

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the labels of a turn's prompt."""
        tracker = turn.get_cache(PromptTaintTracker)
        return Interceptor(self.name, tracker.handles, self.facts, tracker.intercept)

    def prepare(self, turn: Preparation) -> Json:
        """Return the initial trust label of the turn and its sources."""
        return turn.get_cache(PromptTaintTracker).record

    def interceptor(self, turn: TurnView) -> Interceptor:
        """Return the labels of a turn with trust tracking."""
        return Interceptor(self.name, self.handles, self.facts, turn.get_cache(TurnLabels).intercept)

    def trust_labeler(self, tick_context: TickContext) -> TrustLabeler | None:
        """Return the trust labeler of a tick, or None without trust tracking."""
        return tick_context.get_cache(make_labeler) if get_trust_settings(tick_context.config.org) else None

    def intercept(self, effect: LiveEffect, turn: TurnView) -> Interception:
        """Tell gates how far a turn and the arguments of its calls are trusted, and label results and files."""
        live = turn.live
        tick = live.tick
        if tick is None or not get_trust_settings(tick.tick_context.config.org):
            return None
        return live.get_cache(CallTaintTracker).intercept(effect)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield rules for no existing author, patterns for no tool, and blockers of clean turns."""
        if isinstance(subject, ReferenceCheck):
            names, trust = subject.names, get_trust_settings(subject.names.config.org)
            if subject.agent is not None:
                yield from to_problems(validate_clean_turns(subject.agent, trust, names.config))
            elif trust:
                yield from to_problems(validate_trust(trust, names))

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
                lambda name: (
                    name.author in agents and is_person_agent(agents[name.author], config) and is_endorsement(name)
                )
            )


class TurnLabels:
    """The trust label of one turn, and the labels of all its outputs."""

    def __init__(self, turn: TurnView) -> None:
        self._turn = turn
        self._label_state = TurnLabelState(turn.snapshot, self._turn.agent.name, self._turn.tick)
        self._publish_label()

    def _publish_label(self) -> None:
        self._turn.set_trust_label(self._label_state.label)
        self._turn.report(TRUST, self._label_state.as_json())

    def intercept(self, effect: Effect) -> Interception:
        """Record the label of each result, and label what the model and other turns are shown."""
        match effect:
            case TakeResult():
                self._record_result(effect)
            case ShowResult():
                return Allowed(replace(effect, result=self._label_state.render_result(effect.result)))
            case Seal():
                return self._seal(effect)
        return None

    def _record_result(self, effect: TakeResult) -> None:
        if effect.result.trust:
            self._label_state.record_result(effect.result.trust)
            self._publish_label()

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
