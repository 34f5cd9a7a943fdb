"""What a strategy of a turn is: a generator that says what to ask and what to do, and knows nothing else.

It is driven by `lemming.turn.loop`: what it yields is done, or was done before and stands in the journal, and
what came of it is sent back. So a turn that was interrupted is taken again and comes to the same end,
whatever its strategy, as long as that depends on nothing but what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.contract import TurnReply
from lemming.errors import ContractError, OutOfCredits
from lemming.providers import Message
from lemming.report import End
from lemming.turn.actions import responses
from lemming.turn.draft import Draft
from lemming.turn.prompt import correction, native_results, results_message, results_values
from lemming.turn.values import Answer

REPLY_CHARS_QUOTED = 4000


class Ask(NamedTuple):
    """A question to a model, the agent's own unless `model` is a key of `config/models.json`.

    Sent back is the `Answer`; thrown is what stood in its place: a `ProviderError`, or `OutOfCredits`.
    """

    messages: Sequence[Message]
    model: str = ""


class Act(NamedTuple):
    """A reply whose entries are written, whose tools are called and whose memories are kept."""

    reply: TurnReply


Steps = Generator[Ask | Act, Any, End]


class Turn:
    """A turn as its strategy sees it: what it starts from, and what it has come to."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    @property
    def prompt(self) -> list[Message]:
        """The messages that the turn begins with."""
        return [*self._draft.inputs.prompt]

    @property
    def max_steps(self) -> int:
        """How many replies may be asked for, corrections not counted."""
        return self._draft.inputs.max_steps

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """What tools gave that no model has been shown: tool, args, success, output."""
        return self._draft.unshown

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do: the request is answered or handed on."""
        return self._draft.is_answered or self._draft.is_handed_on

    @property
    def has_asked(self) -> bool:
        """Whether others were asked, whose answers come in a later turn."""
        return bool(self._draft.asked)

    def ask(self, messages: Sequence[Message], model: str = "") -> Generator[Ask | Act, Any, Answer]:
        """Ask a model, and return its answer as it is."""
        answer: Answer = yield Ask(messages, model)
        return answer

    def act(self, reply: TurnReply) -> Generator[Ask | Act, Any, None]:
        """Do what a reply says."""
        yield Act(reply)

    def reply(self, messages: list[Message]) -> Generator[Ask | Act, Any, TurnReply]:
        """Ask for a reply that is the contract, with corrections where the limits allow.

        The messages are those up to now, to which the answers are added. Raises `ContractError` when none is.
        """
        if self.results:
            messages += self.shown(messages)
        problem: ContractError | None = None
        for corrections_left in range(self._draft.inputs.repairs, -1, -1):
            try:
                answer = yield from self.ask(messages)
            except OutOfCredits as error:
                if problem is None:
                    raise
                return self._salvage(messages, f"; no correction: {error.message}")
            try:
                read = self._draft.read(answer)
            except ContractError as error:
                if not corrections_left:
                    return self._salvage(messages)
                problem = error
                self._draft.remarks.append(f"asked again: {error}"[:500])
                said = {"role": "assistant", "content": answer.text[:REPLY_CHARS_QUOTED]}
                messages += [said, correction(str(error)[:2000])]
            else:
                messages.append(said_in(answer))
                return read
        raise AssertionError("unreachable: the last correction returns or raises")

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that show the model what its tools gave, after those up to now."""
        if self._draft.inputs.model.prompt == "values":
            return [results_values(self.results)]
        if self._draft.inputs.model.prompt == "tools":
            return [responses(self.results)]
        calls = messages[-1].get("calls", ())
        given = {call: result for result, call in zip(self.results, self._draft.unshown_calls, strict=True)}
        others = [
            result
            for result, call in zip(self.results, self._draft.unshown_calls, strict=True)
            if call not in {made["id"] for made in calls}
        ]
        natively = native_results(calls, given)
        return [*natively, *([results_message(others, [*messages, *natively])] if others else [])]

    def _salvage(self, messages: list[Message], why: str = "") -> TurnReply:
        """Read the last answer, which stays as it is, without its wrong parts; raise if nothing remains."""
        answer = self._draft.answers[-1]
        try:
            read = self._draft.read(answer, keep="any" if self._draft.accepted else "some")
        except ContractError as error:
            raise ContractError(f"{error.message}{why}") from error
        messages.append(said_in(answer))
        return read


Strategy = Callable[[Turn], Steps]


def said_in(answer: Answer) -> Message:
    """Return the message that tells a model what it has answered."""
    calls = {"calls": answer.calls} if answer.calls else {}
    kept = {"kept": answer.kept} if answer.kept is not None else {}
    return {"role": "assistant", "content": answer.text, **calls, **kept}
