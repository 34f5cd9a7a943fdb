"""A run of a plan: which step it is at, and what came of each. One memory, which a person may edit. Pure.

Format: docs/plans.md, "Runs". Its key is that of the request; what cannot be understood of it is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lemming.kernel.files.documents import value_of

PREFIX = "run-"
Json = dict[str, Any]
Phase = Literal["asked", "called", "waiting", "verifying", "done", "failed"]


@dataclass(kw_only=True)
class Doing:
    """Where one step, or one member of a band, stands.

    `call` is the place of its tool call among those of the turn, or in `wait` the id of one of which nobody
    knows whether it happened; `failures` counts tries that gave nothing,
    `rejections` answers that did not pass; `wait` is what is waited for.
    """

    phase: Phase
    tag: str = ""
    since: int = 0
    call: int = 0
    failures: int = 0
    rejections: int = 0
    answer: Json | None = None
    reasons: str = ""
    wait: Json | None = None


@dataclass(kw_only=True)
class Run:
    """One run. `at` is the step under way, `previous` the one before.

    `rounds` counts how often each step was begun, `tries` how often the band under way was. `items`: those
    for each of which the step under way is done; None where it is not.
    """

    request: str
    asker: str = ""
    began: int = 0
    status: Literal["running", "done", "failed"] = "running"
    ended: int | None = None
    why: str = ""
    at: str = ""
    previous: str = ""
    tries: int = 1
    rounds: dict[str, int] = field(default_factory=dict)
    doing: dict[str, Doing] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    items: list[Any] | None = None

    @property
    def steps_begun(self) -> int:
        """How many steps the run has begun."""
        return sum(self.rounds.values())

    def as_json(self) -> Json:
        """Return the memory's value; what says nothing is left out."""
        plain = asdict(self)
        plain["doing"] = {name: _short(each) for name, each in plain["doing"].items()}
        return {key: value for key, value in plain.items() if key in _ALWAYS or value not in _NOTHING}


_ALWAYS = ("request", "status", "at")
_NOTHING: tuple[Any, ...] = (None, "", {}, [], 0)


def _short(doing: Mapping[str, Any]) -> Json:
    return {key: value for key, value in doing.items() if value not in _NOTHING}


def run_key(request_id: str) -> str:
    """Return the key of the memory that holds the run for a request.

    >>> run_key("3fa9c1d2e0b7")
    'run-3fa9c1d2e0b7'
    """
    return f"{PREFIX}{request_id.replace('/', '.')}"


def run_in(value: Any) -> Run:
    """Return the run that a memory holds; raise `ValueError` that says what of it is wrong."""
    run: Run = value_of(Run, value)
    return run


def is_led_elsewhere(value: Any) -> bool:
    """Return whether the run in a memory waits for nothing, since a person took out what it did."""
    return isinstance(value, dict) and value.get("status") == "running" and not value.get("doing")


def waits_in(value: Any) -> list[Json]:
    """Return what the run in a memory waits for outside; nothing for what is no run."""
    doing = value.get("doing") if isinstance(value, dict) and value.get("status") == "running" else None
    states = [each for each in doing.values() if isinstance(each, dict)] if isinstance(doing, dict) else []
    if any(state.get("phase") in ("asked", "called", "verifying") for state in states):
        return []  # it goes on when those have ended
    waits = (state.get("wait") for state in states if state.get("phase") == "waiting")
    return [wait for wait in waits if isinstance(wait, dict)]


def is_over(wait: Json, tick: int, now: str, files: Mapping[str, str | None]) -> bool:
    """Return whether a wait is over: in this tick, at this moment, with these files (their digests).

    >>> is_over({"tick": 7}, 7, "", {}), is_over({"file": "./in.csv"}, 7, "", {"./in.csv": None})
    (True, False)
    """
    if "call" in wait:  # that a person says what became of it is a result, and no moment
        return False
    if isinstance(until := wait.get("give_up"), int) and tick >= until:
        return True
    if isinstance(until := wait.get("tick"), int):
        return tick >= until
    if isinstance(moment := wait.get("time"), str):
        return bool(now) and now >= moment
    if isinstance(file := wait.get("file"), str) and file in files:
        found = files[file]
        return found != wait.get("was") if wait.get("until") == "changes" else found is not None
    return False
