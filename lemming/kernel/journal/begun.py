"""Requests that an agent has begun and not finished, and what it asked of others for them.

It stands in the agent's ledger: what the entries themselves do not tell. Format: docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.dialogue import Dialogue


class _Plain:
    """Values that are left out of JSON where they say nothing."""

    def as_json(self) -> dict[str, Any]:
        """Return the value as JSON; keys that are at their default are left out."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        # False is 0 here, and is left out with it.
        empty: tuple[Any, ...] = (None, "", 0, (), {})
        return {key: value for key, value in plain.items() if value not in empty}


@dataclass(frozen=True, kw_only=True)
class Asked(_Plain):
    """Something asked of one agent. `request` and `answer` are entries, by `EntryName.identity`.

    `until` is the last tick whose answer counts, `not_after` the last moment. `group`: those that are waited
    for together; `call`: the place, among the results kept, of the tool call that asked, plus 1. `end` is
    empty while it is open.
    `held`: what waits for the answer, by the capability that keeps it and says how it ends. `budget`: of that
    of the request it was asked for, what may be spent on it.
    """

    request: str
    to: str
    until: int | None = None
    group: int = 0
    call: int = 0
    end: str = ""
    answer: str = ""
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_after: str = ""
    budget: float | None = field(default=None, metadata={"ge": 0, "le": LARGEST_AMOUNT})

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all else that was asked: one entry may ask several."""
        return self.request, self.to


@dataclass(frozen=True, kw_only=True)
class Begun(_Plain):
    """A request that a turn was taken for, and that is still open.

    `request` is the entry's identity, empty for what the agent asked on its own account. `asked`: of whom
    what, in order; `enough`: for each group, how many ends are waited for. `results`: those of tool calls
    that no turn was shown yet. `turns`: how many it has taken so far; `failures`: how many in a row gave
    nothing that could be used. `spent`: what its own turns for it cost, where the request has a budget;
    `calls`: how often these asked a model.
    `in_vain`: how often calls gave the same in its turns, by what tells them apart. `stands_still`: whether
    the last of them came no further: it gave no answer, and nothing was asked, called or learned.
    `dialogue`: what its model and the tools said, while results of its calls wait.
    """

    request: str
    asked: tuple[Asked, ...] = ()
    enough: tuple[int, ...] = ()
    results: tuple[dict[str, Any], ...] = ()
    turns: int = 0
    failures: int = 0
    spent: float = 0.0
    calls: int = 0
    in_vain: dict[str, int] = field(default_factory=dict)
    stands_still: bool = False
    dialogue: Dialogue | None = None

    @property
    def is_only_shown(self) -> bool:
        """Whether no turn has come any further with it: it was part of an inbox, or turns came to nothing."""
        return not (self.asked or self.results or self.turns)

    @property
    def says_anything(self) -> bool:
        """Whether it is more than that the request is open, which the entries tell."""
        return bool(not self.is_only_shown or self.failures or self.spent or self.calls)

    @property
    def key(self) -> str:
        """What tells it from the agent's others: the request, or the first of what was asked without one."""
        return self.request or (self.asked[0].request if self.asked else "")

    @property
    def open(self) -> list[Asked]:
        """What has no answer yet."""
        return [asked for asked in self.asked if not asked.end]

    @property
    def goes_on(self) -> bool:
        """Whether there is nothing more to wait for."""
        ended = [asked.group for asked in self.asked if asked.end]
        waited = {asked.group for asked in self.asked if not asked.end}
        return all(ended.count(group) >= self.enough[group] for group in waited)

    @property
    def wakes_at(self) -> int | None:
        """The first tick in which something that was asked is over because its time is."""
        ends = [asked.until + 1 for asked in self.open if asked.until is not None]
        return min(ends, default=None)

    @property
    def has_an_end(self) -> bool:
        """Whether something that was asked is over when its time is, in ticks or by the clock."""
        return any(asked.until is not None or asked.not_after for asked in self.open)

    def ended(self, found: Mapping[tuple[str, str], tuple[str, str]]) -> Begun:
        """Return it with the ends that were found of what is open: the end and the answer, by request."""
        asked = tuple(
            replace(it, end=found[it.key][0], answer=found[it.key][1]) if it.key in found else it
            for it in self.asked
        )
        return replace(self, asked=asked)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; keys that say nothing are left out."""
        asked = {"asked": [it.as_json() for it in self.asked]} if self.asked else {}
        lists = {key: [*value] for key in ("enough", "results") if (value := getattr(self, key))}
        keys = ("failures", "spent", "calls", "in_vain", "stands_still")
        further = {key: value for key in keys if (value := getattr(self, key))}
        dialogue = {"dialogue": self.dialogue.as_json()} if self.dialogue else {}
        return {"request": self.request, **asked, **lists, "turns": self.turns, **further, **dialogue}


def with_more_spent(requests: Sequence[Begun], others: Sequence[Begun]) -> tuple[Begun, ...]:
    """Return requests, with what others say was spent on them where that is more."""
    spent = {it.key: it.spent for it in others if it.spent}
    known = [replace(it, spent=max(it.spent, spent.pop(it.key, 0.0))) for it in requests]
    return (*known, *(Begun(request=key, spent=number) for key, number in spent.items()))


def end_text(asked: Asked) -> str:
    """Return in words until when something was waited for."""
    ends = [*([f"tick {asked.until}"] if asked.until is not None else []), *filter(None, [asked.not_after])]
    return " or ".join(ends)
