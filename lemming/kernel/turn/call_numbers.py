"""Numbers of a turn's calls, used by journals, idempotency keys and repairs. Pure.

Every call of a reply has a number before any of the calls runs. Several calls may run in parallel, and side
results of one call (a refused entry, for example) must not change the key of another.
"""

from __future__ import annotations

from collections.abc import Callable


class CallNumbers:
    """Numbers of a turn's calls. `result_count` is the number of results up to now.

    `last`: number of the current or most recent call. `is_recorded` returns True if the journal has a call
    with the number.
    """

    last = -1
    _pending: int | None = None

    def __init__(self, is_recorded: Callable[[int], bool]) -> None:
        self._is_recorded = is_recorded
        self._next = self._first = self._after_reply = 0

    def next_free(self, result_count: int) -> int:
        """Return the first unused number."""
        return max(self._next, result_count)

    def reserve(self, result_count: int) -> int:
        """Return a number that no call has or will get, for another numbered item."""
        number = max(self.next_free(result_count), self._after_reply)
        self._next = number + 1
        return number

    def begin_reply(self, result_count: int, count: int) -> None:
        """Number the calls of a reply in order."""
        self._first = self.next_free(result_count)
        self._after_reply = self._first + count

    def get_reply_number(self, index: int) -> int:
        """Return the number of the call at index `count` of the reply."""
        return self._first + index

    def set_pending(self, number: int | None) -> None:
        """Set the number of the call under inspection, or None for a call outside a reply."""
        self._pending = number

    def assign(self, result_count: int) -> int:
        """Assign a number to a call that runs or is finally refused, and return the journal's number."""
        number = self.next_free(result_count) if self._pending is None else self._pending
        self.last = self.get_recorded_number(number, result_count)
        self._first += self.last - number
        self._next = max(self._next, self.last + 1)
        return self.last

    def peek(self, result_count: int) -> int:
        """Return the number that `assign` would give to the current call, without assigning it."""
        number = self.next_free(result_count) if self._pending is None else self._pending
        return self.get_recorded_number(number, result_count)

    def get_recorded_number(self, number: int, result_count: int) -> int:
        """Return the journal's number of the next call: `number`, or the count of results in old journals.

        Up to 0.2.0 calls were numbered by their index among the results, so calls after an extra result have
        a later number in journals of that time. Calls are recorded in order: a later number without this one
        identifies an old journal, and the turn continues as recorded.
        """
        is_old_journal = result_count > number and self._is_recorded(result_count) and not self._is_recorded(number)
        return result_count if is_old_journal else number
