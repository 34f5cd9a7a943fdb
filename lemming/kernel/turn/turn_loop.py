"""Turn of one agent: runs the strategy to the end and builds the outcome.

A turn starts from `TurnInputs`. All outside data comes from an `AnswerSource`, which returns recorded answers
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lemming.kernel.base.errors import (
    ContractError,
    LemmingError,
    OutOfCredits,
    Paused,
    ProviderError,
    StoppedByGate,
    StrategyFailed,
    TurnTooLong,
)
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import ENDS, End
from lemming.kernel.plugins.capability_table import DECISION_RULES, LISTED, REQUEST_RULES, SPEAKING_PROVIDERS, USES
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.turn.effect_chain import EffectChain, check_json
from lemming.kernel.turn.preparation import RunTurn
from lemming.kernel.turn.preparation_chain import starting_capabilities
from lemming.kernel.turn.strategy import NoMoreReplies, Strategy, Turn, react
from lemming.kernel.turn.turn_approvals import TurnApprovals
from lemming.kernel.turn.turn_effects import AskModel, CallTool, EffectPerformed, has_turn_effects
from lemming.kernel.turn.turn_end import build_outcome
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Act, Answer, AnswerSource, Ask, Step, Steps, TurnInputs, TurnOutcome
from lemming.kernel.turn.turn_view import TurnView

MAX_ANSWERS = 1000
"""Maximum number of answers for a strategy: one that asks for more would never end."""


def run_strategy(turn_state: TurnState, strategy: Strategy | None = None) -> End:
    """Run a strategy, or without one the agent's own, to the end. Lets errors of the strategy through."""
    task = turn_state.inputs.task
    if task and (reason := task.failure_reason):  # no reply could change the outcome
        turn_state.fail_request(reason)
        return "done"
    if turn_state.approvals and (end := turn_state.approvals.start()):
        return _parse_end(end)
    turn = turn_state.strategy_turn
    chosen: list[Steps] = []  # by a capability, in place of `react`

    def run_innermost(steps: Steps | None = None) -> End:
        if steps is None:
            steps = strategy(turn) if strategy else chosen[-1] if chosen else react(turn)
        return _run_steps(turn_state, steps)

    run: RunTurn = run_innermost
    for wrap_turn in reversed(turn_state.capabilities.wraps):  # the first capability is the outermost
        run = _wrap(turn_state, wrap_turn, run, chosen)
    return run()


def _wrap(turn_state: TurnState, wrap_turn: Callable[[RunTurn], End], run: RunTurn, chosen: list[Steps]) -> RunTurn:
    """Return the rest of a turn inside a capability. It runs once; after that only steps of a strategy run."""
    has_run = False

    def run_inside(steps: Steps | None = None) -> End:
        nonlocal has_run
        if has_run and steps is not None:
            return _run_steps(turn_state, steps)
        has_run = True
        chosen.extend(() if steps is None else [steps])
        return wrap_turn(run)

    return run_inside


def _run_steps(turn_state: TurnState, steps: Steps) -> End:
    """Run the steps of a strategy until the strategy ends or the turn must end."""
    answer: Answer | None = None
    thrown: LemmingError | None = None
    while not turn_state.forced_end:
        try:
            step = steps.throw(thrown) if thrown else steps.send(answer)
        except StopIteration as stop:
            return _parse_end(stop.value)
        except NoMoreReplies:
            return "step_limit"
        # Known errors end the turn under their names; only unexpected ones are mistakes of the strategy.
        except LemmingError:
            raise
        except Exception as error:
            raise StrategyFailed(
                f"the strategy failed: {describe_exception(error)}, at {locate_error(error)}"
            ) from error
        try:
            answer, thrown = _perform_step(turn_state, step), None
        # A strategy may catch this and go on without the answer; otherwise the error passes through.
        except (OutOfCredits, ProviderError) as error:
            answer, thrown = None, error
    # Its `finally` blocks run here, not whenever the generator happens to be collected.
    steps.close()
    return turn_state.forced_end


def _perform_step(turn_state: TurnState, step: Step) -> Answer | None:
    match step:
        case Ask():
            if len(turn_state.answers) >= MAX_ANSWERS:
                raise StrategyFailed(f"the strategy asked for more than {MAX_ANSWERS} answers")
            return turn_state.ask([*step.messages], step.model, step.schema)
        case Act():
            if not turn_state.answers:
                raise StrategyFailed("the strategy must ask for an answer before it acts")
            turn_state.stage_reply(step.reply, has_seen=step.has_seen)
            return None
    raise StrategyFailed(f"the strategy must yield Ask or Act, got {type(step).__name__}")


def _parse_end(value: Any) -> End:
    """Return the end of the turn from a strategy's return value. Raises `StrategyFailed` for an unknown value."""
    if value not in ENDS:
        raise StrategyFailed(f"the strategy must end with {', '.join(sorted(ENDS))}, got {value!r}")
    end: End = value
    return end


def finish_turn(
    turn_state: TurnState, strategy: Strategy | None = None, plugins: tuple[str, ...] | None = None
) -> TurnOutcome:
    """Run a turn to the end. A turn that runs out of credits keeps the results.

    Raises `ConfigError` if a capability of the turn is missing: the turn does not run without the capability.
    """
    capabilities = find_turn_capabilities(turn_state, plugins)
    approvals = TurnApprovals(turn_state) if DECISION_RULES in turn_state.inputs.given else None
    with_requests = capabilities is not NO_CAPABILITIES and has_requests(turn_state.inputs)
    turn_state.begin(capabilities, Turn(turn_state, plugins), approvals, has_requests=with_requests)
    try:
        end = run_strategy(turn_state, strategy)
        return build_outcome(turn_state, end, turn_state.stop_error if end == "failed" else None)
    except OutOfCredits as error:
        is_late, is_paused = isinstance(error, TurnTooLong), isinstance(error, Paused)
        end = "deadline" if is_late else "paused" if is_paused else "out_of_credits"
        turn_state.stop(error)
        if turn_state.only_asks:
            return build_outcome(turn_state, "waits")
        # Nothing to record.
        if not (turn_state.answers or turn_state.results):
            return build_outcome(turn_state, "no_answer" if end == "deadline" else end, error)
        # Only questions of capabilities were answered: the agent's own model was not called.
        if len(turn_state.answers) == sum(map(len, turn_state.auxiliary_answers.values())):
            return build_outcome(turn_state, "no_answer", error)
        turn_state.remark(str(error))
        return build_outcome(turn_state, end)
    except ContractError as error:
        is_cut_off = bool(turn_state.answers) and turn_state.answers[-1].finish == "length"
        return build_outcome(turn_state, "cut_off" if is_cut_off else "bad_reply", error)
    except ProviderError as error:
        return build_outcome(turn_state, "no_answer", error)
    except (StoppedByGate, StrategyFailed) as error:
        return build_outcome(turn_state, "failed", error)


def take_turn(inputs: TurnInputs, answers: AnswerSource, plugins: tuple[str, ...] | None = None) -> TurnOutcome:
    """Run one turn. Returns whatever the model does. Raises only a disk error or a stop.

    `plugins`: plugins that may bring strategies and capabilities. None allows any plugin of the process.
    """
    return finish_turn(TurnState(inputs, answers), plugins=plugins)


class TurnCapabilities:
    """Capabilities of a turn, in the order in which they are called.

    `chain` is None if none of them handles an effect, and `wraps` has what runs around the turn, outermost first.
    """

    def __init__(
        self, capabilities: Iterable[Capability], snapshots: Mapping[str, Json], turn_state: TurnState | None
    ) -> None:
        self.chain: EffectChain | None = None
        self.wraps: list[Callable[[RunTurn], End]] = []
        self._members: list[tuple[Capability, TurnView]] = []
        if turn_state is None:
            return
        for capability in capabilities:
            snapshot = snapshots.get(capability.name, {})
            view = TurnView(capability.name, turn_state, snapshot, frozenset(capability.handles))
            self._members.append((capability, view))
            if capability.wraps_turns:
                self.wraps.append(partial(capability.wrap_turn, view))
        links = [capability.interceptor(view) for capability, view in self._members]
        if any(has_turn_effects(link.handles) for link in links):
            self.chain = EffectChain(links, turn_state.perform, turn_state.events.append)

    def reduce_states(self, states: Mapping[str, Json], *, is_applied: bool) -> dict[str, Json]:
        """Return the states for the ledger, by capability, after the events of the turn that count.

        `is_applied`: all events count. Of a failed turn only calls and answers of models do. A capability gets the events
        of the types it handles, whatever others handle.
        """
        reduced = {**states}
        for capability, view in self._members:
            if not capability.reduces_events:
                continue
            state = states.get(capability.name, {})
            for event in view.iter_events():
                is_outside = isinstance(event, EffectPerformed) and isinstance(event.effect, (CallTool, AskModel))
                if is_applied or is_outside:
                    state = capability.reduce(state, event, view)
            if capability.name not in LISTED and is_applied:  # a failed turn must keep the states of the others
                check_json(capability.name, capability.reduce, state, "the state to keep, a JSON object")
            reduced[capability.name] = state
        return {name: state for name, state in reduced.items() if state}


NO_CAPABILITIES = TurnCapabilities((), {}, None)
"""The capabilities of a plain turn."""


def find_turn_capabilities(turn_state: TurnState, plugins: Sequence[str] | None = None) -> TurnCapabilities:
    """Return the capabilities of a turn from the recorded inputs.

    Raises `ConfigError` for a missing capability.

    `plugins`: the organisation's plugins; None allows any plugin of the process.
    """
    inputs = turn_state.inputs
    agent, entry = inputs.agent, inputs.model
    snapshots: Mapping[str, Json] = inputs.given
    # Capabilities without a snapshot, by the other recorded inputs.
    extra_names = [name for name, uses in USES.items() if uses(agent, entry)]
    if entry.provider in SPEAKING_PROVIDERS:
        extra_names.append(SPEAKING_PROVIDERS[entry.provider][0])
    if has_requests(inputs):
        extra_names.append(REQUEST_RULES)
    if not (extra_names or snapshots):
        return NO_CAPABILITIES
    return TurnCapabilities(starting_capabilities(inputs, plugins, extra_names), snapshots, turn_state)


_WITHOUT_REQUESTS = LISTED.keys() - {REQUEST_RULES, DECISION_RULES}
"""Capabilities whose turns write no request that a person answers; a plugin's may."""


def has_requests(inputs: TurnInputs) -> bool:
    """Return True if a turn serves, shows or can create requests: to a team or to persons."""
    is_shown = inputs.open_requests or inputs.said_requests
    if inputs.task or is_shown or inputs.state.requests or "team" in inputs.agent.extensions:
        return True
    return not inputs.given.keys() <= _WITHOUT_REQUESTS
