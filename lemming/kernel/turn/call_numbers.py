"""The numbers of a turn's calls, under which journals, idempotency keys and repairs know them. Pure.

A call has its number before any call of its reply is made: several may run at once, and what one of them
brings along (an entry that is refused, say) must not change under which key another is made.
"""

from __future__ import annotations

from collections.abc import Callable


class CallNumbers:
    """The numbers that the calls of one turn have. A `place` is the number of results that it has so far.

    `last`: the number of the call that was made last, or is being made. `is_recorded` returns whether the
    journal has a call with a number.
    """

    last = -1
    _coming: int | None = None

    def __init__(self, is_recorded: Callable[[int], bool]) -> None:
        self._is_recorded = is_recorded
        self._next = self._first = self._after_reply = 0

    def free(self, place: int) -> int:
        """Return the first number that no call has."""
        return max(self._next, place)

    def take(self, place: int) -> int:
        """Return a number that no call has or will get, for something else that people know by one."""
        number = max(self.free(place), self._after_reply)
        self._next = number + 1
        return number

    def begin_reply(self, place: int, count: int) -> None:
        """Number the calls of a reply, in their order."""
        self._first = self.free(place)
        self._after_reply = self._first + count

    def of_reply(self, count: int) -> int:
        """Return the number of the call before which `count` others stand in its reply."""
        return self._first + count

    def come(self, number: int | None) -> None:
        """Note that a call is looked at which has this number in its reply; None: it is in no reply."""
        self._coming = number

    def make(self, place: int) -> int:
        """Note that the call is made, or refused for good, and return its number in the journal."""
        number = self.free(place) if self._coming is None else self._coming
        self.last = self.recorded(number, place)
        self._first += self.last - number
        self._next = max(self._next, self.last + 1)
        return self.last

    def recorded(self, number: int, place: int) -> int:
        """Return the number that the journal knows the next call by, which is its own or its place.

        Up to 0.2.0 calls were numbered by their place among the results, so those after a call that brought
        a result along have a later number in a journal of that time. Calls are recorded in their order: a
        later number without this one tells such a journal, and its turn goes on as it began.
        """
        is_by_place = place > number and self._is_recorded(place) and not self._is_recorded(number)
        return place if is_by_place else number
