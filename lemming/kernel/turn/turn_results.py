"""Results of a turn's calls: which of them the model has seen, and the numbers of the calls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import ToolUseJson
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.tool_results import Notices, render_result, without_notices
from lemming.kernel.turn.turn_effects import AskPerson


class CallNumbers:
    """Numbers of a turn's calls. `results`: those up to now.

    `last`: number of the current or most recent call. `is_recorded` returns True if the journal has a call
    with the number. `questions`: to persons, about the current call, of which `approved` have their approval.
    """

    last = -1
    questions: tuple[AskPerson, ...] = ()
    approved = 0
    _pending: int | None = None

    def __init__(self, is_recorded: Callable[[int], bool], results: Sequence[Json]) -> None:
        self._is_recorded, self._results = is_recorded, results
        self._next = self._first = self._after_reply = 0

    def next_free(self) -> int:
        """Return the first unused number."""
        return max(self._next, len(self._results))

    def reserve(self) -> int:
        """Return a number that no call has or will get, for another numbered item."""
        number = max(self.next_free(), self._after_reply)
        self._next = number + 1
        return number

    def begin_reply(self, count: int) -> None:
        """Number the calls of a reply in order."""
        self._first = self.next_free()
        self._after_reply = self._first + count

    def get_reply_number(self, index: int) -> int:
        """Return the number of the call at this index of the reply."""
        return self._first + index

    def begin_call(self, number: int | None) -> None:
        """Set the number of the call under inspection, or None for a call outside a reply."""
        self._pending, self.questions, self.approved = number, (), 0

    def assign(self) -> int:
        """Assign a number to a call that runs or is finally refused, and return the journal's number."""
        number = self.next_free() if self._pending is None else self._pending
        self.last = self.get_recorded_number(number)
        self._first += self.last - number
        self._next = max(self._next, self.last + 1)
        return self.last

    def peek(self) -> int:
        """Return the number that `assign` would give to the current call, without assigning it."""
        number = self.next_free() if self._pending is None else self._pending
        return self.get_recorded_number(number)

    def get_recorded_number(self, number: int) -> int:
        """Return the journal's number of the next call: `number`, or the count of results in old journals.

        Up to 0.2.0 calls were numbered by their index among the results, so calls after an extra result have
        a later number in journals of that time. Calls are recorded in order: a later number without this one
        identifies an old journal, and the turn continues as recorded.
        """
        result_count = len(self._results)
        is_old_journal = result_count > number and self._is_recorded(result_count) and not self._is_recorded(number)
        return result_count if is_old_journal else number


class TurnResults:
    """Results of a turn's calls. The model has seen the first `shown_count`, and never sees those in `hidden`.

    `items`: the results as prompts show them. `call_ids`: their ids at the provider. `uses`: the calls for the report.
    `external`: results of calls with side effects. `found_tools`: tools that calls found, as models are told of them.
    `notices`: of the current reply. `numbers`: of the calls.
    """

    def __init__(self, is_recorded: Callable[[int], bool]) -> None:
        self.items: list[Json] = []
        self.call_ids: list[str] = []
        self.shown_count = 0
        self.hidden = set[int]()
        self.uses: list[ToolUseJson] = []
        self.external: list[Json] = []
        self.found_tools: list[Mapping[str, Any]] = []
        self.notices = Notices()
        self.numbers = CallNumbers(is_recorded, self.items)

    @property
    def unshown(self) -> list[Json]:
        """Results that the model has not seen."""
        return [] if self.shown_count == len(self.items) else [self.items[index] for index in self.unshown_indexes]

    @property
    def unshown_indexes(self) -> list[int]:
        """Indexes of the results that the model has not seen but should see."""
        return [index for index in range(self.shown_count, len(self.items)) if index not in self.hidden]

    @property
    def has_unshown(self) -> bool:
        """True if there is an unshown result, including results for calls of the backend."""
        return self.shown_count < len(self.items)

    @property
    def actionable(self) -> Sequence[Json]:
        """Results that justify another model call: no notices, except after a first useless reply."""
        unshown = self.unshown
        return without_notices(unshown) if unshown and not self.notices.should_retry else unshown

    def add(self, result: Json, call_id: str = "") -> None:
        """Add a result, with the id of its call at the provider."""
        self.items.append(result)
        self.call_ids.append(call_id)

    def leave(self, tool: str, result: ToolResult) -> None:
        """Add a result that no call gave."""
        self.add(render_result(tool, {}, result))

    def replace(self, items: Sequence[Json], call_ids: list[str]) -> None:
        """Replace the results, of which the model has seen none."""
        self.items[:], self.call_ids, self.shown_count = items, call_ids, 0

    def mark_shown(self, count: int | None = None) -> int:
        """Count results as shown to the model, all or the first `count`. Return the number that counted before."""
        before, self.shown_count = self.shown_count, len(self.items) if count is None else count
        return before

    def hide(self, index: int, *, is_hidden: bool = True) -> None:
        """Hide the result at an index from the model, or show it."""
        (self.hidden.add if is_hidden else self.hidden.discard)(index)
