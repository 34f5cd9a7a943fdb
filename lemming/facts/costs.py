"""What an organisation has spent, by agent, model, request, tick or day; the sums are those of the ledgers.

Ledgers add dollars up in floating point. So what a turn cost is what its agent's ledger grew by, to the last
digit, and sums of such are exact whatever they are grouped by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal, localcontext
from functools import reduce
from typing import Any, Literal, NamedTuple

from lemming.capabilities.money.spent import (
    CallSpent,
    LedgerSpent,
    Progress,
    TickSpent,
    TurnSpent,
    quiet,
    spent_in_all,
)
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.times.zones import zone
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.lost_calls import NONE_LOST, Lost
from lemming.kernel.llm.credits import exact
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.shipped import JUDGES

By = Literal["agent", "model", "request", "tick", "day"]
REMOVED = " (removed)"
"""What stands behind the name of an agent that has no ledger any more."""
ZERO = Decimal(0)
_DIGITS = 60  # more than amounts and their sums have


class Cost(NamedTuple):
    """An amount that was spent. `cost_usd` has no calls of unknown price; `unpriced_calls` are so many.

    `cached_tokens`: of the input, those that providers had in their caches, as far as journals tell;
    `recorded_tokens` is the input of the calls that journals tell of.
    """

    turns: int = 0
    calls: int = 0
    credits: Decimal = ZERO
    cost_usd: Decimal | None = None
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    recorded_tokens: int = 0

    @property
    def cached_share(self) -> float | None:
        """The share of the recorded input that was cached, from 0 to 1; None without any input.

        >>> Cost(input_tokens=5000, recorded_tokens=2000, cached_tokens=1600).cached_share
        0.8
        """
        return round(self.cached_tokens / self.recorded_tokens, 4) if self.recorded_tokens else None

    def plus(self, other: Cost) -> Cost:
        """Return both together."""
        dollars = self.cost_usd if other.cost_usd is None else (self.cost_usd or ZERO) + other.cost_usd
        return Cost(
            self.turns + other.turns,
            self.calls + other.calls,
            self.credits + other.credits,
            dollars,
            self.unpriced_calls + other.unpriced_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.recorded_tokens + other.recorded_tokens,
        )

    def without(self, part: Cost) -> Cost:
        """Return what is left in a ledger, which counts neither turns nor calls, without a part of it."""
        dollars = None
        if self.cost_usd is not None or part.cost_usd is not None:
            dollars = (self.cost_usd or ZERO) - (part.cost_usd or ZERO)
        return Cost(
            credits=self.credits - part.credits,
            cost_usd=dollars,
            unpriced_calls=self.unpriced_calls - part.unpriced_calls,
            input_tokens=self.input_tokens - part.input_tokens,
            output_tokens=self.output_tokens - part.output_tokens,
        )

    @property
    def amounts(self) -> tuple[Decimal | int, ...]:
        """What ledgers keep of it."""
        dollars = self.cost_usd or ZERO
        return self.credits, dollars, self.unpriced_calls, self.input_tokens, self.output_tokens

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        dollars = None if self.cost_usd is None else float(self.cost_usd)
        numbers = {"credits": float(self.credits), "cost_usd": dollars, "cached_share": self.cached_share}
        return {**self._asdict(), **numbers}


NOTHING = Cost()


@dataclass
class Costs:
    """What was spent, row by row. `total`: what ledgers and `gone` say together.

    `before`: what ledgers say and no journal tells of; `first`: the oldest tick that has one, `is_pruned`
    where there were others. `removed`: what agents spent that have no ledger any more, by name. `open`: what
    turns under way have spent, which is in no ledger yet. `damaged`: ticks whose journals cannot be read.
    `judged`: of all credits in the ledgers, those that judges cost; none with `since`. `lost`: what limits
    count beside the total, for calls whose answers never came.
    """

    by: By
    rows: dict[str, Cost] = field(default_factory=dict)
    total: Cost = NOTHING
    before: Cost = NOTHING
    removed: dict[str, Cost] = field(default_factory=dict)
    open: Cost = NOTHING
    first: int | None = None
    is_pruned: bool = False
    damaged: list[int] = field(default_factory=list)
    judged: Decimal = ZERO
    lost: Lost = NONE_LOST

    @property
    def gone(self) -> Cost:
        """What all spent together that were removed."""
        return _sum(self.removed.values())


@dataclass
class _Turn:
    """A turn that asked a model, and what its agent's ledger said before and after."""

    agent: str
    tick: int
    at: str
    request: str
    before: Cost
    after: Cost
    calls: list[tuple[str, Cost]]

    @property
    def cost(self) -> Cost:
        """What it cost, which is what the ledger grew by."""
        return _sum((cost for _, cost in self.calls), Cost(turns=1))


@dataclass
class _Life:
    """The turns of one agent between two that do not follow from each other; `owner`: whose they are now."""

    agent: str
    turns: list[_Turn]
    owner: str = ""


def costs_by(base: OrgPath, by: By, *, since: int = 0, progress: Progress = quiet) -> Costs:
    """Return what was spent; with `since`, only by turns of that tick and later ones.

    `progress` is told which old journal is unpacked. Raises `CorruptState` for a ledger that cannot be read.
    """
    with localcontext(prec=_DIGITS):
        states = {name: read_state(base, name) for name in agents_with_ledgers(base)}
        return _costs_by(base, Costs(by), since, progress, states)


def agents_with_ledgers(base: OrgPath) -> list[str]:
    """Return the names of the folders that may have a ledger: agents, whatever became of their resumes."""
    return [name for name in agent_folders(base) if paths.AGENT_NAME.match(name)]


def removed(base: OrgPath) -> Mapping[str, Cost]:
    """Return what those have spent that have no ledger any more, by name, as far as journals tell.

    What an agent spent whose ledger is damaged, which `accounts` says, is not among it. An `Organisation`
    keeps it until a folder comes or goes, or a ledger begins anew, or is damaged or mended.
    """
    return Organisation.at(base).own(_Removed).found()


class _Removed:
    """What removed agents spent, and what there was to look at when it was counted."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._oldest: list[int] | None = None
        self._ledgers: dict[str, Cost | None] = {}
        self._found: dict[str, Cost] = {}

    def found(self) -> Mapping[str, Cost]:
        oldest = journal_ticks(self._org)[:1]
        states = {name: _state_if_sound(self._org, name) for name in agents_with_ledgers(self._org)}
        ledgers = {name: _of_state(state) if state else None for name, state in states.items()}
        is_as_before = oldest == self._oldest and ledgers.keys() == self._ledgers.keys()
        if not is_as_before or any(_began_anew(it, ledgers[name]) for name, it in self._ledgers.items()):
            with localcontext(prec=_DIGITS):
                self._found = _costs_by(self._org, Costs("agent"), 0, quiet, states).removed
        self._oldest, self._ledgers = oldest, ledgers
        return self._found


def _state_if_sound(org: Organisation, name: str) -> AgentState | None:
    try:
        return read_state(org, name)
    except CorruptState:
        return None


def _began_anew(before: Cost | None, now: Cost | None) -> bool:
    """Return whether a ledger does not go on from what it was; one that is damaged is None."""
    return (before is None) != (now is None) if before is None or now is None else _is_less(now, before)


def _costs_by(
    base: OrgPath, costs: Costs, since: int, progress: Progress, kept: Mapping[str, AgentState | None]
) -> Costs:
    """`kept`: the ledgers; one that is damaged (None) has all that its agent spent since it began."""
    states = {name: state for name, state in kept.items() if state}
    ledgers = {name: _of_state(state) if state else NOTHING for name, state in kept.items()}
    zone_name = load_config(base).org.timezone
    costs.lost = reduce(Lost.plus, (state.lost for state in states.values()), NONE_LOST)
    turns, day_in = [], zone(zone_name) if zone_name else UTC
    for turn in _turns(base, costs, progress):
        if (state := states.get(turn.agent)) and turn.tick > state.tick:
            costs.open = costs.open.plus(turn.cost)
        else:
            turns.append(turn)
    rests = dict(ledgers)
    for life in _lives(turns, ledgers):
        if life.owner:
            rests[life.owner] = _sum((turn.cost for turn in life.turns), rests[life.owner], Cost.without)
        for turn in life.turns:
            if turn.tick >= since:
                _add(costs, turn, life.owner, day_in)
                if not life.owner:
                    costs.removed[turn.agent] = costs.removed.get(turn.agent, NOTHING).plus(turn.cost)
    if not since:
        costs.judged = sum((Decimal(str(state.aside.get(JUDGES, 0.0))) for state in states.values()), ZERO)
        costs.before = _sum(rest for rest in rests.values() if any(rest.amounts))
        if costs.by == "agent":
            for name, rest in rests.items():
                if name in costs.rows or any(rest.amounts):
                    costs.rows[name] = costs.rows.get(name, NOTHING).plus(rest)
    if costs.by in ("agent", "model"):  # the others come in the order of their ticks
        costs.rows = dict(sorted(costs.rows.items()))
    costs.total = _sum(costs.rows.values(), NOTHING if costs.by == "agent" else costs.before)
    return costs


def _turns(base: OrgPath, costs: Costs, progress: Progress) -> Iterator[_Turn]:
    """Yield the turns that asked a model, in the order of their ticks."""
    for found in spent_in_all(base, progress):
        if isinstance(found, int):
            costs.damaged.append(found)
            continue
        if costs.first is None:
            costs.first, costs.is_pruned = found.tick, found.after is not None
        for spent in found.turns.values():
            if spent.calls:
                yield _turn(found, spent)


def _turn(tick: TickSpent, spent: TurnSpent) -> _Turn:
    """Return a turn with its calls so that they add up to what the ledger grew by."""
    state, calls = spent.before, spent.calls
    before, each = _of_state(state), [_of_call(call) for call in calls]
    credits = round(min(state.credits + sum(call.credits for call in calls), LARGEST_AMOUNT), 6)
    grown = exact(credits) - before.credits
    # the last call takes what rounding leaves: so the sum is what the ledger grew by
    each[-1] = each[-1]._replace(credits=grown - sum((it.credits for it in each[:-1]), ZERO))
    priced = [place for place, call in enumerate(calls) if call.cost_usd is not None]
    if priced:
        known = sum(call.cost_usd for call in calls if call.cost_usd is not None)
        grown = exact(min((state.cost_usd or 0.0) + known, LARGEST_AMOUNT)) - (before.cost_usd or ZERO)
        others = sum((each[place].cost_usd or ZERO for place in priced[:-1]), ZERO)
        each[priced[-1]] = each[priced[-1]]._replace(cost_usd=grown - others)
    after = _sum(each, before)
    keys = (call.model for call in calls)
    return _Turn(
        spent.agent, tick.tick, tick.at, spent.request, before, after, [*zip(keys, each, strict=True)]
    )


def _lives(turns: list[_Turn], ledgers: Mapping[str, Cost]) -> list[_Life]:
    """Return the turns by whose they were, and find whose ledger counts them now.

    An agent that was made anew begins with nothing; one that was renamed goes on where another name ended.
    """
    lives: list[_Life] = []
    latest: dict[str, _Life] = {}
    for turn in turns:
        life = latest.get(turn.agent)
        if life is None or _is_less(turn.before, life.turns[-1].after):
            life = latest[turn.agent] = _Life(turn.agent, [])
            lives.append(life)
        life.turns.append(turn)
    begins = {life.turns[0].before.amounts: life for life in lives}
    stands = {ledger.amounts: name for name, ledger in ledgers.items() if name not in latest}
    for life in reversed(lives):  # an heir is known before whom it follows
        end = life.turns[-1].after.amounts
        is_own = latest[life.agent] is life and life.agent in ledgers
        heir = begins.get(end)
        life.owner = life.agent if is_own else heir.owner if heir else stands.get(end, "")
    return lives


def _is_less(one: Cost, other: Cost) -> bool:
    """Return whether a ledger cannot have come from the one to the other: its amounts only grow."""
    return any(before < after for before, after in zip(one.amounts, other.amounts, strict=True))


def _add(costs: Costs, turn: _Turn, owner: str, day_in: tzinfo) -> None:
    """Add a turn to the rows that it belongs to."""
    match costs.by:
        case "agent":
            rows = [(owner or f"{turn.agent}{REMOVED}", turn.cost)]
        case "model":
            rows = [(key, cost) for key, cost in turn.calls]
        case "request":
            rows = [(turn.request, turn.cost)]
        case "tick":
            rows = [(str(turn.tick), turn.cost)]
        case "day":
            day = parse_timestamp(turn.at).astimezone(day_in).strftime("%Y-%m-%d")
            rows = [(day, turn.cost)]
    for row, cost in rows:
        costs.rows[row] = costs.rows.get(row, NOTHING).plus(cost)


def _of_state(state: AgentState | LedgerSpent) -> Cost:
    return Cost(
        credits=exact(state.credits),
        cost_usd=None if state.cost_usd is None else exact(state.cost_usd),
        unpriced_calls=state.unpriced_calls,
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
    )


def _of_call(call: CallSpent) -> Cost:
    dollars = None if call.cost_usd is None else exact(call.cost_usd)
    is_unpriced = int(dollars is None)
    tokens = call.input_tokens, call.output_tokens, call.cached_tokens, call.input_tokens
    return Cost(0, 1, exact(call.credits), dollars, is_unpriced, *tokens)


def _sum(costs: Iterable[Cost], first: Cost = NOTHING, add: Callable[[Cost, Cost], Cost] = Cost.plus) -> Cost:
    return reduce(add, costs, first)
