"""Turn of one agent: runs the strategy to the end and builds the outcome.

A turn starts from `TurnInputs`. All outside data comes from an `AnswerSource`, which returns recorded answers
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from lemming.kernel.journal.turn_report import ENDS, End
from lemming.kernel.plugins.capability_errors import HookError, find_capability_at_fault
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.turn.effect_chain import NO_CHAIN
from lemming.kernel.turn.preparation import RunTurn
from lemming.kernel.turn.strategy import NoMoreReplies, Strategy, Turn, react
from lemming.kernel.turn.turn_approvals import TurnApprovals
from lemming.kernel.turn.turn_chain import find_turn_chain, has_requests
from lemming.kernel.turn.turn_end import build_outcome
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Act, Answer, AnswerSource, Ask, Step, Steps, TurnInputs, TurnOutcome

Wrap = Callable[[RunTurn], End]
"""`Capability.wrap_turn` of one turn."""
MAX_ANSWERS = 1000
"""Maximum number of answers for a strategy: one that asks for more would never end."""


def run_strategy(turn_state: TurnState, strategy: Strategy | None = None, wraps: Sequence[Wrap] = ()) -> End:
    """Run a strategy, or without one the agent's own, to the end. Lets errors of the strategy through.

    `wraps`: what capabilities run around it, outermost first.
    """
    current_request = turn_state.inputs.current_request
    if current_request and (reason := current_request.failure_reason):  # no reply could change the outcome
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
    for wrap_turn in reversed(wraps):
        run = _wrap(turn_state, wrap_turn, run, chosen)
    return run()


def _wrap(turn_state: TurnState, wrap_turn: Wrap, run: RunTurn, chosen: list[Steps]) -> RunTurn:
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
            if isinstance(error, HookError) or find_capability_at_fault(error):
                raise  # a hook that an effect of the strategy passed
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
    chain = find_turn_chain(turn_state, plugins)
    approvals = TurnApprovals(turn_state) if DECISION_RULES in turn_state.inputs.given else None
    with_requests = chain is not None and has_requests(turn_state.inputs)
    turn_state.begin(chain or NO_CHAIN, Turn(turn_state, plugins), approvals, has_requests=with_requests)
    try:
        end = run_strategy(turn_state, strategy, chain.wraps if chain else ())
        return build_outcome(turn_state, end, turn_state.stop_error if end == "failed" else None)
    except OutOfCredits as error:
        is_late, is_paused = isinstance(error, TurnTooLong), isinstance(error, Paused)
        end = "deadline" if is_late else "paused" if is_paused else "out_of_credits"
        turn_state.stop(error)
        if turn_state.only_asks:
            return build_outcome(turn_state, "waits")
        # Nothing to record.
        if not (turn_state.answers or turn_state.results.items):
            return build_outcome(turn_state, "no_answer" if end == "deadline" else end, error)
        # Only questions of capabilities were answered: the agent's own model was not called.
        if all(answer.asked_by for answer in turn_state.answers):
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
