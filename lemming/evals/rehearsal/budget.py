"""What is paid for models: reserved before each call at its worst, and counted once it is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

from lemming.capabilities.money.prices import worst_of
from lemming.kernel.base.errors import AnswerTooLarge, OverBudget, ProviderError
from lemming.kernel.llm.credits import exact, most_tokens_in, usage_of
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Reply, Request


class Spending:
    """Dollars that calls have cost, at most `limit` (None: any number). Safe to use from many threads.

    `unpriced`: calls of which no price is known. `at_most`: what all calls could have cost.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.limit = None if limit is None else exact(limit)
        self.calls, self.unpriced = 0, 0
        self.credits, self.dollars, self.at_most = 0.0, Decimal(0), Decimal(0)
        self._reserved = Decimal(0)
        self._lock = threading.Lock()

    def pay(self, entry: ModelEntry, request: Request, ask: Callable[..., Reply]) -> Reply:
        """Return the result of `ask`; raise `OverBudget` before a call that could cost too much.

        `ask` takes what is called before each retry. An attempt that may be billed though its answer never
        came has cost the most that it can.
        """
        in_vain = 0

        def before_again(error: ProviderError) -> None:
            nonlocal in_vain
            if error.may_be_paid:
                self._require_room(entry, request)
                in_vain += 1

        self._require_room(entry, request)
        try:
            reply = ask(request, before_again=before_again)
        except ProviderError as error:
            if isinstance(error, AnswerTooLarge):  # it is paid for
                self._count(entry, request, Reply("", output_tokens=request.max_output_tokens))
            elif error.may_be_paid:
                in_vain += 1
            else:
                self.settle(entry, request, 0.0, 0.0)
            raise
        except OverBudget:
            in_vain += 1  # the attempt after which no other is made
            raise
        else:
            self._count(entry, request, reply)
            return reply
        finally:
            for _ in range(in_vain):
                worst = worst_of(entry, most_tokens_in(request))
                self.settle(entry, request, float(worst.credits), float(worst.dollars or 0))

    def _require_room(self, entry: ModelEntry, request: Request) -> None:
        if why := self.reserve(entry, request):
            raise OverBudget(why, hint="a higher --budget")

    def _count(self, entry: ModelEntry, request: Request, reply: Reply) -> None:
        used = usage_of(entry, request.messages, reply)
        self.settle(entry, request, used.credits, used.cost_usd)

    def reserve(self, entry: ModelEntry, request: Request) -> str:
        """Keep back what a call can cost at most; return why it may not be made, or an empty string."""
        worst = self._worst(entry, request)
        with self._lock:
            if self.limit is not None and (why := self._why_not(entry, worst)):
                return why
            self._note(worst)
            self._reserved += worst or 0
        return ""

    def _why_not(self, entry: ModelEntry, worst: Decimal | None) -> str:
        if worst is None:
            name = entry.model or entry.provider
            return f"no price is known for {name}, so no budget can be kept; config/models.json can say one"
        # Calls under way count as if they cost the most: together they must not go over.
        if self.dollars + self._reserved + worst <= (self.limit or 0):
            return ""
        return f"the next call can cost ${worst:.6f}, and ${self.dollars:.6f} of ${self.limit} are spent"

    def settle(self, entry: ModelEntry, request: Request, credits: float, dollars: float | None) -> None:
        """Count what a call has cost that was reserved."""
        with self._lock:
            self._reserved -= self._worst(entry, request) or 0
            self.credits += credits
            self.dollars += exact(dollars or 0.0)

    def foresee(self, entry: ModelEntry, request: Request) -> None:
        """Count a call that is not made."""
        with self._lock:
            self._note(self._worst(entry, request))

    def _note(self, worst: Decimal | None) -> None:
        self.calls += 1
        self.unpriced += worst is None
        self.at_most += worst or 0

    def _worst(self, entry: ModelEntry, request: Request) -> Decimal | None:
        return worst_of(entry, most_tokens_in(request)).dollars
