"""Budget for model calls: the maximum cost is reserved before each call, and the actual cost counted after the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

from lemming.kernel.base.errors import AnswerTooLarge, OverBudget, ProviderError
from lemming.kernel.llm.call_cost import compute_usage, max_input_tokens, to_decimal
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Reply, Request
from lemming.operations.model_prices import max_call_cost


class SpendingBudget:
    """Dollars spent on model calls, limited to `limit` (None: unlimited). Thread-safe.

    `unpriced`: number of calls without a known price. `max_dollars`: maximum cost of all calls together.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.limit = None if limit is None else to_decimal(limit)
        self.calls, self.unpriced = 0, 0
        self.credits, self.dollars, self.max_dollars = 0.0, Decimal(0), Decimal(0)
        self._reserved = Decimal(0)
        self._lock = threading.Lock()

    def run_within_budget(self, entry: ModelEntry, request: Request, ask: Callable[..., Reply]) -> Reply:
        """Return the result of `ask`, within the budget.

        `ask` takes a function to call before each retry. A failed attempt that may be billed counts with the maximum
        cost. Raises: OverBudget before a call that could exceed the budget.
        """
        failed_attempts = 0

        def before_retry(error: ProviderError) -> None:
            nonlocal failed_attempts
            if error.may_be_paid:
                self._require_room(entry, request)
                failed_attempts += 1

        self._require_room(entry, request)
        try:
            reply = ask(request, before_again=before_retry)
        except ProviderError as error:
            if isinstance(error, AnswerTooLarge):  # the answer is billed
                self._record_cost(entry, request, Reply("", output_tokens=request.max_output_tokens))
            elif error.may_be_paid:
                failed_attempts += 1
            else:
                self._settle(entry, request, 0.0, 0.0)
            raise
        except OverBudget:
            failed_attempts += 1  # the attempt before the refused retry
            raise
        else:
            self._record_cost(entry, request, reply)
            return reply
        finally:
            for _ in range(failed_attempts):
                bound = max_call_cost(entry, max_input_tokens(request))
                self._settle(entry, request, float(bound.credits), float(bound.dollars or 0))

    def _require_room(self, entry: ModelEntry, request: Request) -> None:
        """Reserve the maximum cost of a call. Raises: OverBudget."""
        max_cost, hint = self._max_cost(entry, request), "raise --budget"
        with self._lock:
            if self.limit is not None and max_cost is None:
                name = entry.model or entry.provider
                reason = f"{name} has no known price, so no budget can be kept; set one in config/models.json"
                raise OverBudget(reason, hint=hint)
            # Calls in flight count with their maximum cost, so all calls together stay within the limit.
            if self.limit is not None and self.dollars + self._reserved + (max_cost or 0) > self.limit:
                spent = f"${self.dollars:.6f} of ${self.limit} are spent"
                raise OverBudget(f"the next call can cost ${max_cost:.6f}, and {spent}", hint=hint)
            self._add_estimate(max_cost)
            self._reserved += max_cost or 0

    def _record_cost(self, entry: ModelEntry, request: Request, reply: Reply) -> None:
        usage = compute_usage(entry, request.messages, reply)
        self._settle(entry, request, usage.credits, usage.cost_usd)

    def _settle(self, entry: ModelEntry, request: Request, credits: float, dollars: float | None) -> None:
        with self._lock:
            self._reserved -= self._max_cost(entry, request) or 0
            self.credits += credits
            self.dollars += to_decimal(dollars or 0.0)

    def estimate(self, entry: ModelEntry, request: Request) -> None:
        """Count the estimate of a skipped call."""
        with self._lock:
            self._add_estimate(self._max_cost(entry, request))

    def _add_estimate(self, max_cost: Decimal | None) -> None:
        self.calls += 1
        self.unpriced += max_cost is None
        self.max_dollars += max_cost or 0

    def _max_cost(self, entry: ModelEntry, request: Request) -> Decimal | None:
        return max_call_cost(entry, max_input_tokens(request)).dollars
