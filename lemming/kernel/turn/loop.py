"""One turn of one agent: its strategy is driven to its end, and what it has come to is added up.

What a turn starts from are its `TurnInputs`; whatever it asks of the world goes through its `Answers`, which
give back the recorded answer where there is one.
"""

from __future__ import annotations

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
from lemming.kernel.journal.report import ENDS, End
from lemming.kernel.plugins.errors import place_of, words_of
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.ending import add_up
from lemming.kernel.turn.hooks import Seams
from lemming.kernel.turn.parts import seams_of
from lemming.kernel.turn.react import react
from lemming.kernel.turn.seams import Drive
from lemming.kernel.turn.strategy import NoMoreReplies, Strategy, Turn
from lemming.kernel.turn.values import Act, Answer, Answers, Ask, Step, Steps, TurnInputs, TurnOutcome

MOST_ANSWERS = 1000
"""So many answers a strategy may ask for; one that wants more does not come to an end."""


def drive(draft: Draft, strategy: Strategy | None = None, plugins: tuple[str, ...] | None = None) -> End:
    """Do what a strategy says until it is over, and return how it ended. Raises what it lets through.

    Without one it is the turn's own, out of what these plugins bring.
    """
    for opens in draft.seams.opens:
        if end := opens():
            return end
    turn = Turn(draft)
    steps = strategy(turn) if strategy else _steps_of(turn, draft.seams, plugins)
    drive_steps: Drive = partial(_driven, draft)
    for drives in draft.seams.drives:
        drive_steps = partial(drives, turn, drive_steps)
    return drive_steps(steps)


def _steps_of(turn: Turn, seams: Seams, plugins: tuple[str, ...] | None) -> Steps:
    """Return the steps of a turn: a capability's, or to ask, and to do what the reply says."""
    for steps_of in seams.steps:
        if (steps := steps_of(turn, plugins)) is not None:
            return steps
    return react(turn)


def _driven(draft: Draft, steps: Steps) -> End:
    """Tell a strategy what came of each of its steps, until it says how the turn ended, or that is known."""
    answer: Answer | None = None
    thrown: LemmingError | None = None
    while not draft.over:
        try:
            step = steps.throw(thrown) if thrown else steps.send(answer)
        except StopIteration as over:
            return _end_in(over.value)
        except NoMoreReplies:
            return "step_limit"
        # What has a name ends the turn by it; only what nobody foresaw is the strategy's own mistake.
        except LemmingError:
            raise
        except Exception as error:
            raise StrategyFailed(f"the strategy broke: {words_of(error)}, at {place_of(error)}") from error
        try:
            answer, thrown = _do(draft, step), None
        # A strategy may go on without this answer, with what it has; one that does not lets it through.
        except (OutOfCredits, ProviderError) as error:
            answer, thrown = None, error
    # Its `finally` blocks run here, not whenever the generator happens to be collected.
    steps.close()
    return draft.over


def _do(draft: Draft, step: Step) -> Answer | None:
    """Do one thing that a strategy wants, and return what came of it."""
    match step:
        case Ask():
            if len(draft.answers) >= MOST_ANSWERS:
                raise StrategyFailed(f"the strategy asked for more than {MOST_ANSWERS} answers")
            return draft.ask([*step.messages], step.model, step.schema)
        case Act():
            if not draft.answers:
                raise StrategyFailed("the strategy acts before it has asked for an answer")
            draft.act(step.reply, has_seen=step.has_seen)
            return None
    raise StrategyFailed(f"the strategy yielded {type(step).__name__}, which is neither Ask nor Act")


def _end_in(value: Any) -> End:
    """Return how a strategy says that the turn ended."""
    if value not in ENDS:
        raise StrategyFailed(f"the strategy ended with {value!r}: {', '.join(sorted(ENDS))}") from None
    end: End = value
    return end


def finish(
    draft: Draft, strategy: Strategy | None = None, plugins: tuple[str, ...] | None = None
) -> TurnOutcome:
    """Take a turn to its end. A turn whose credits end on the way keeps what it has come to.

    Raises `ConfigError` for one that was begun with a capability that is not here: it is not taken without.
    """
    draft.seams = seams_of(draft, plugins)
    try:
        end = drive(draft, strategy, plugins)
        return add_up(draft, end, draft.stopped_by if end == "failed" else None)
    except OutOfCredits as error:
        end = _end_by(error)
        draft.stopped_by = error
        if draft.only_asks:
            return add_up(draft, "waits")
        # Nothing came of it that a record could keep.
        if not (draft.answers or draft.results):
            return add_up(draft, "no_answer" if end == "deadline" else end, error)
        # All that was answered were questions of capabilities: the agent itself was asked nothing.
        if len(draft.answers) == sum(map(len, draft.aside.values())):
            return add_up(draft, "no_answer", error)
        draft.remarks.append(str(error))
        return add_up(draft, end)
    except ContractError as error:
        is_cut_off = bool(draft.answers) and draft.answers[-1].finish == "length"
        return add_up(draft, "cut_off" if is_cut_off else "bad_reply", error)
    except ProviderError as error:
        return add_up(draft, "no_answer", error)
    except (StoppedByGate, StrategyFailed) as error:
        return add_up(draft, "failed", error)


def _end_by(error: OutOfCredits) -> End:
    """Return how a turn ends in which no more may be asked."""
    if isinstance(error, TurnTooLong):
        return "deadline"
    return "paused" if isinstance(error, Paused) else "out_of_credits"


def take_turn(inputs: TurnInputs, answers: Answers, plugins: tuple[str, ...] | None = None) -> TurnOutcome:
    """Take one turn. Whatever the model does, this returns; a failing disk or a stop is raised.

    A strategy or a capability of somebody's own is one that `plugins` bring; None: any plugin of the process.
    """
    return finish(Draft(inputs, answers), plugins=plugins)
