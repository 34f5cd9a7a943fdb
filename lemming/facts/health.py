"""What is wrong with an organisation now, by agent and by backend: for `status` and `doctor`."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from lemming.agents import Survey
from lemming.base import paths
from lemming.base.clock import SystemClock
from lemming.capabilities.background.threads import fallen
from lemming.llm.circuit import open_circuits
from lemming.org.organisation import OrgPath
from lemming.tick.not_done import NotDone, read_turns_not_done

FIXES = {
    "AuthenticationFailed": "set the key that config/models.json names, or correct it",
    "CircuitOpen": "it is tried again by itself; `lemming doctor` says what the backend answered",
    "ConfigError": "lemming validate",
    "LimitReached": "change the line that it names, or wait until its window is over: docs/money.md",
    "OutOfCredits": "lemming credits grant {agent} AMOUNT",
    "Paused": "lemming resume",
    "UnknownModel": "lemming models list",
}
ROOM_NEEDED_BYTES = 64 << 20


@dataclass(frozen=True)
class Trouble:
    """Something that a person should see to; `since_tick` and `since` (a time) where something tells."""

    about: str
    text: str
    fix: str
    since_tick: int | None = None
    since: str = ""


def troubles_of(base: OrgPath, survey: Survey) -> list[Trouble]:
    """Return what is wrong: agents that fail or may not spend, backends left alone, a disk that is full."""
    not_done = read_turns_not_done(base)
    found = [
        _of_agent(turn)
        for name, turn in sorted(not_done.items())
        if name in survey.agents and not survey.agents[name].paused and not _is_mended(turn)
    ]
    for name, error in survey.broken.items():
        found.append(_of_broken(name, str(error), not_done.get(name)))
    for fall in fallen(base, SystemClock().now()):
        often = "once" if fall.times == 1 else f"{fall.times} times in a row"
        text = f"died {often}, at last {fall.at}: {fall.why}"
        fix = "it is started again by itself; logs/engine.log has each time"
        found.append(Trouble(f"thread {fall.thread}", text, fix, since=fall.at))
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


def _of_broken(name: str, error: str, turn: NotDone | None) -> Trouble:
    text, fix = f"out of service: {error}", FIXES["ConfigError"]
    if turn is None:  # no tick has run since it broke
        return Trouble(name, text, fix)
    return Trouble(name, f"out of service {_since(turn)}: {error}", fix, turn.since_tick, turn.since)


def _of_agent(turn: NotDone) -> Trouble:
    what = "failing" if turn.status == "failed" else "takes no turn"
    fix = FIXES.get(turn.error, "lemming logs {agent}").format(agent=turn.agent)
    text = f"{what} {_since(turn)}: {turn.reason}"
    return Trouble(turn.agent, text, fix, turn.since_tick, turn.since)


def _since(turn: NotDone) -> str:
    when = f" ({turn.since[:19]}Z)" if turn.since else ""
    return f"since tick {turn.since_tick}{when}"
