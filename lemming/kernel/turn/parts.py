"""The capabilities that take part in a turn, asked moment by moment, in their order: `turn.seams`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.records import Record, ToolFinished
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.uses import named_by
from lemming.kernel.plugins.capabilities import capability, in_order
from lemming.kernel.plugins.shipped import LISTED, REQUESTS, TAKING_PART
from lemming.kernel.providers import Message, Request
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.hooks import PLAIN_LINE, Seams
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import Asking, Held, Holder, Tracing, Words
from lemming.kernel.turn.prepared import used_by
from lemming.kernel.turn.seams import (
    Capability,
)
from lemming.kernel.turn.values import Purpose, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft


def seams_of(draft: Draft, plugins: Sequence[str] | None = None) -> Seams:
    """Return the parts of a turn, from what it was given; raise `ConfigError` for one that is not here.

    `plugins`: those of the organisation; None: any of the process.
    """
    inputs = draft.inputs
    given: Mapping[str, Json] = inputs.given
    also = [name for name, takes_part in TAKING_PART if takes_part(inputs)]
    if not (also or given):
        return PLAIN_LINE
    known = begun_with(inputs, plugins, also)
    return Seams({it.name: it.part(draft, given.get(it.name, {})) for it in known})


def completed(
    request: Request, entry: ModelEntry, inputs: TurnInputs, base: Path, held: Mapping[str, bytes]
) -> Request:
    """Return a question of a turn as its model is asked, with what capabilities add to it."""
    for name in inputs.given:
        request = capability(name).completes(request, entry, inputs, base, held)
    return request


def begun_with(
    inputs: TurnInputs, plugins: Sequence[str] | None, also: Iterable[str] = ()
) -> list[Capability]:
    """Return the capabilities that a turn was begun with; raise `ConfigError` for one that is not here."""
    try:
        return [capability(it, plugins) for it in in_order({*inputs.given, *also}, plugins)]
    except ConfigError as error:
        turn = f"the turn of {inputs.agent.name} in tick {inputs.tick}"
        message = f"{turn} was begun with {' and '.join(sorted(inputs.given))}: {error.message}"
        raise ConfigError(message, where=error.where, hint=error.hint) from error


def holder_of(now: Surroundings, inputs: TurnInputs, finished: Mapping[int, ToolFinished]) -> Holder:
    """Return who says what becomes of a turn's calls for which approval is wanted."""
    for it in begun_with(inputs, now.config.org.plugins):
        if (holder := it.holder(now, inputs, finished)) is not None:
            return holder
    return _Nobody()


def trust_words(now: Surroundings, agent: Agent) -> Words | None:
    """Return how far what an agent's turns are shown is trusted; None where nobody tracks that."""
    return next((found for it in used_by(agent, now.config) if (found := it.words(now)) is not None), None)


def tracing_of(now: Surroundings, inputs: TurnInputs) -> Tracing | None:
    """Return who looks at where a turn's calls reach; None where nobody does."""
    known = begun_with(inputs, now.config.org.plugins)
    return next((found for it in known if (found := it.tracing(now, inputs)) is not None), None)


class _Nobody:
    def hold(
        self, call: ToolCall, asking: Asking, context: ToolContext, plan: Callable[[], ToolResult]
    ) -> Held:
        why = f"REFUSED: a gate asks about it ({asking.line}), and nothing here asks anybody"
        return Held(ToolResult(False, why, outcome="refused"))


def why_not_on(inputs: TurnInputs, now: Surroundings) -> str:
    """Return why a turn that a crash cut off may not go on; empty when it may."""
    plugins = now.config.org.plugins
    also = named_by(inputs.agent, now.config) & LISTED.keys()  # what holds now and its record has not
    for it in begun_with(inputs, plugins, also):
        if why := it.why_not(inputs, now):
            return why
    return ""


def after_giving_up(
    state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str, plugins: Sequence[str]
) -> AgentState:
    """Return the state of an agent whose turn is given up by an error; raise `ConfigError` as `begun_with`.

    What the turn has used up only those know who took part in it: until they are back, it stays as it is.
    """
    found = [*records]
    also = [REQUESTS] if inputs.task else []
    for it in begun_with(inputs, plugins, also):
        state = it.given_up(state, inputs, found, error)
    return state


def purpose_in(plain: Json) -> Purpose:
    """Return what a turn is for, as its record has it; raise `ConfigError` where nobody here says so."""
    found: Purpose | None = capability(REQUESTS).purpose_in(plain)
    assert found is not None, "requests say what a turn is for"
    return found


def kept_results(
    inputs: TurnInputs, records: Iterable[Record], results: list[dict[str, Any]], plugins: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the results of a turn that is given up as its next one has them. Raises as `begun_with`."""
    for it in begun_with(inputs, plugins):
        results = it.kept_results(inputs, records, results)
    return results


def questions_of(given: Mapping[str, Json]) -> Iterator[tuple[str, Sequence[Message]]]:
    """Yield what capabilities ask in a turn before its own questions, each with what it is for.

    Raises `ConfigError` for one that is not here.
    """
    for name in in_order(given) if given else ():
        yield from capability(name).questions(given[name]).items()
