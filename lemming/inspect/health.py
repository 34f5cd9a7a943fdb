"""What is wrong with an organisation now, by agent and by backend: for `status` and `doctor`."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from lemming import paths
from lemming.agents import Survey
from lemming.clock import SystemClock
from lemming.llm.circuit import open_circuits
from lemming.organisation import OrgPath
from lemming.tick.not_done import NotDone, read_turns_not_done

FIXES = {
    "AuthenticationFailed": "set the key that config/models.json names, or correct it",
    "CircuitOpen": "it is tried again by itself; `lemming doctor` says what the backend answered",
    "ConfigError": "lemming validate",
    "OutOfCredits": "lemming credits grant {agent} AMOUNT",
    "UnknownModel": "lemming models list",
}
ROOM_NEEDED_BYTES = 64 << 20


@dataclass(frozen=True)
class Trouble:
    """Something that a person should see to. `since_tick` is None where no tick tells."""

    about: str
    text: str
    fix: str
    since_tick: int | None = None


def troubles_of(base: OrgPath, survey: Survey) -> list[Trouble]:
    """Return what is wrong: agents that fail or may not spend, backends left alone, a disk that is full."""
    not_done = read_turns_not_done(base)
    found = [
        _of_agent(turn)
        for name, turn in sorted(not_done.items())
        if name in survey.agents and not survey.agents[name].paused and not _is_mended(turn)
    ]
    for name, error in survey.broken.items():
        since = not_done[name].since_tick if name in not_done else None
        found.append(Trouble(name, f"out of service: {error}", FIXES["ConfigError"], since))
    for name, state in open_circuits(base, SystemClock().now()).items():
        text = f"left alone until {state.open_until} after {state.failures} failures in a row: {state.reason}"
        found.append(Trouble(name, text, f"mend the backend; delete {paths.CIRCUITS_FILE} to try at once"))
    if (free := shutil.disk_usage(base).free) < ROOM_NEEDED_BYTES:
        found.append(Trouble("disk", f"{free / 1e6:.1f} MB free", "free some space"))
    return found


def seconds_since_tick(base: OrgPath) -> float | None:
    """Return how long ago the tick counter moved; None when it never has."""
    try:
        return max(0.0, time.time() - (base / paths.TICK_FILE).stat().st_mtime)
    except FileNotFoundError:
        return None


def _is_mended(turn: NotDone) -> bool:
    """Return whether it was the agent's resume that was broken, which by now is not."""
    return turn.error == "ConfigError" and turn.reason.startswith(paths.resume_file(turn.agent))


def _of_agent(turn: NotDone) -> Trouble:
    what = "failing" if turn.status == "failed" else "takes no turn"
    fix = FIXES.get(turn.error, "lemming logs {agent}").format(agent=turn.agent)
    return Trouble(turn.agent, f"{what} since tick {turn.since_tick}: {turn.reason}", fix, turn.since_tick)
