"""One turn of one agent: its strategy is driven to its end, and what it has come to is added up.

What a turn starts from are its `TurnInputs`; whatever it asks of the world goes through its `Answers`, which
give back the recorded answer where there is one.
"""

from __future__ import annotations

from lemming.errors import ContractError, OutOfCredits, ProviderError, ToolError
from lemming.report import End
from lemming.turn.draft import Draft
from lemming.turn.ending import add_up
from lemming.turn.strategy import Ask, Steps, Strategy, Turn
from lemming.turn.values import Answers, TurnInputs, TurnOutcome


def react(turn: Turn) -> Steps:
    """Ask, do what the reply says, and ask again with the results, as often as the agent may in one turn."""
    messages = turn.prompt
    for _ in range(turn.max_steps):
        reply = yield from turn.reply(messages)
        yield from turn.act(reply)
        if not turn.results or turn.is_over:
            return "done"
        if turn.has_asked:
            return "waits"
    return "step_limit"


def drive(draft: Draft, strategy: Strategy) -> End:
    """Do what a strategy says until it is over, and return how it ended. Raises what it lets through."""
    if draft.task and draft.task.is_used_up:
        return draft.give_up()
    steps = strategy(Turn(draft))
    try:
        step = next(steps)
        while True:
            if isinstance(step, Ask):
                try:
                    answer = draft.ask([*step.messages], step.model)
                except (OutOfCredits, ProviderError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
            else:
                draft.act(step.reply)
                step = next(steps)
    except StopIteration as over:
        ended: End = over.value
        return ended


def finish(draft: Draft, strategy: Strategy = react) -> TurnOutcome:
    """Take a turn to its end. A turn whose credits end on the way keeps what it has come to."""
    try:
        return add_up(draft, drive(draft, strategy))
    except OutOfCredits as error:
        if not draft.answers:
            return add_up(draft, "out_of_credits", error)
        draft.remarks.append(str(error))
        return add_up(draft, "out_of_credits")
    except ToolError as error:
        return add_up(draft, "failed", error)
    except ContractError as error:
        return add_up(draft, "bad_reply", error)
    except ProviderError as error:
        return add_up(draft, "no_answer", error)


def take_turn(inputs: TurnInputs, answers: Answers) -> TurnOutcome:
    """Take one turn. Whatever the model does, this returns; a failing disk or a stop is raised."""
    return finish(Draft(inputs, answers))
