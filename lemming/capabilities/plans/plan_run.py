"""Run of a plan: its current step and the results of its steps, in one memory editable by a person. Pure.

Format: docs/plans.md, "Runs". The key contains the identity of the request. Errors name the invalid part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lemming.kernel.files.json_documents import to_value

PREFIX = "run-"
Json = dict[str, Any]
Phase = Literal["asked", "called", "waiting", "verifying", "done", "failed"]


@dataclass(kw_only=True)
class ActionState:
    """State of one step or of one parallel action.

    `call`: index of the tool call among the calls of the turn, or in `wait` the id of a call with unknown outcome.
    `failures`: attempts without an answer. `rejections`: answers rejected by verification. `wait`: the awaited event.
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
class PlanRun:
    """Run of a plan for a request. `at`: the current step. `previous`: the step before.

    `rounds`: starts of each step. `tries`: attempts of the current parallel group. `items`: the items of the
    current step with `each`, otherwise None.
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
    doing: dict[str, ActionState] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    items: list[Any] | None = None

    @property
    def steps_begun(self) -> int:
        """Number of steps started by the run."""
        return sum(self.rounds.values())

    def as_json(self) -> Json:
        """Return the value of the memory, without empty fields."""
        plain = asdict(self)
        plain["doing"] = {name: _drop_empty(state) for name, state in plain["doing"].items()}
        return {key: value for key, value in plain.items() if key in _REQUIRED_KEYS or value not in _EMPTY_VALUES}


_REQUIRED_KEYS = ("request", "status", "at")
_EMPTY_VALUES: tuple[Any, ...] = (None, "", {}, [], 0)


def _drop_empty(state: Mapping[str, Any]) -> Json:
    return {key: value for key, value in state.items() if value not in _EMPTY_VALUES}


def run_key(request_id: str) -> str:
    """Return the memory key of the run for a request.

    >>> run_key("3fa9c1d2e0b7")
    'run-3fa9c1d2e0b7'
    """
    return f"{PREFIX}{request_id.replace('/', '.')}"


def parse_run(value: Any) -> PlanRun:
    """Return the run in a memory. Raises: ValueError with the invalid part."""
    run: PlanRun = to_value(PlanRun, value)
    return run


def is_redirected(value: Any) -> bool:
    """Return True if a person has redirected the run by removing its current actions."""
    return isinstance(value, dict) and value.get("status") == "running" and not value.get("doing")


def get_waits(value: Any) -> list[Json]:
    """Return the external waits of the run in a memory. Other values have none."""
    raw_states = value.get("doing") if isinstance(value, dict) and value.get("status") == "running" else None
    values = raw_states.values() if isinstance(raw_states, dict) else ()
    states = [state for state in values if isinstance(state, dict)]
    if any(state.get("phase") in ("asked", "called", "verifying") for state in states):
        return []  # the run continues after their end
    waits = (state.get("wait") for state in states if state.get("phase") == "waiting")
    return [wait for wait in waits if isinstance(wait, dict)]


def is_wait_done(wait: Json, tick: int, current_time: str, files: Mapping[str, str | None]) -> bool:
    """Return True if a wait has ended, given the tick, the time and the digests of files.

    >>> is_wait_done({"tick": 7}, 7, "", {}), is_wait_done({"file": "./in.csv"}, 7, "", {"./in.csv": None})
    (True, False)
    """
    if "call" in wait:  # a person's report on a call is a result, not a time
        return False
    if isinstance(until := wait.get("give_up"), int) and tick >= until:
        return True
    if isinstance(until := wait.get("tick"), int):
        return tick >= until
    if isinstance(wait_time := wait.get("time"), str):
        return bool(current_time) and current_time >= wait_time
    if isinstance(file := wait.get("file"), str) and file in files:
        digest = files[file]
        return digest != wait.get("was") if wait.get("until") == "changes" else digest is not None
    return False
