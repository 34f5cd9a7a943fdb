"""What a person should see to now: what `lemming status` asks, and `doctor` and the page too."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.capabilities.background.threads import fallen
from lemming.facts.checklist.check import Check, CheckScope
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.file import newest_journals
from lemming.kernel.llm.circuit import open_circuits
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.next_tick import find_next_tick
from lemming.kernel.tick.turns_not_done import NotDone
from lemming.service.under_way import has_been_interrupted, running_engine

if TYPE_CHECKING:
    from lemming.capabilities.channels.states import ChannelState

FIXES = {
    "AuthenticationFailed": "set the key that config/models.json names, or correct it",
    "CircuitOpen": "it is tried again by itself; `lemming doctor` says what the backend answered",
    "ConfigError": "lemming validate",
    "LimitReached": "change the line that it names, or wait until its window is over: docs/money.md",
    "OutOfCredits": "lemming credits grant {agent} AMOUNT",
    "Paused": "lemming resume",
    "UnknownModel": "lemming models list",
}
ROOM_NEEDED_BYTES, LITTLE_ROOM_BYTES = 64 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True)
class Trouble(Problem):
    """Something that a person should see to; `since_tick` and `since` (a time) where something tells."""

    about: str
    since_tick: int | None = None
    since: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the trouble as JSON values."""
        since = {"since_tick": self.since_tick, "since": self.since}
        return {"about": self.about, "text": self.message, "fix": self.hint, **since}


def troubles_of(scope: CheckScope) -> list[Trouble]:
    """Return what is wrong now: agents that fail or may not spend, backends left alone, a full disk."""
    return [it for check in CHECKS for it in check.find(scope) if isinstance(it, Trouble)]


def seconds_since_tick(base: OrgPath) -> float | None:
    """Return how long ago the tick counter moved; None when it never has."""
    try:
        return max(0.0, time.time() - (base / paths.TICK_FILE).stat().st_mtime)
    except FileNotFoundError:
        return None


# --- agents --------------------------------------------------------------------------------------


def _agents(scope: CheckScope) -> Iterator[Problem]:
    agents, is_well = scope.sound.agents, True
    for name, turn in sorted(scope.turns_not_done.items()):
        if name in agents and not agents[name].paused and not _is_of_its_resume(turn):
            is_well = False
            yield _of_agent(turn)
    if is_well:
        whose = "every agent that is not broken" if scope.sound.broken else "every agent"
        yield note(f"the latest turn of {whose} went well")


def _broken(scope: CheckScope) -> Iterator[Problem]:
    for name, error in scope.sound.broken.items():
        turn = scope.turns_not_done.get(name)
        turn = _of_its_resume(turn) if turn and _is_of_its_resume(turn) else None  # else none was due since
        since = f" {_since(turn)}" if turn else ""
        yield Trouble(
            f"out of service{since}: {error}",
            paths.resume_file(name) if paths.AGENT_NAME.match(name) else "",
            hint=FIXES["ConfigError"],
            about=name,
            since_tick=turn.since_tick if turn else None,
            since=turn.since if turn else "",
        )


def _of_its_resume(turn: NotDone) -> NotDone:
    """Return since when it was the resume: turns before may have failed of something else."""
    return turn if turn.tick == turn.since_tick else replace(turn, since_tick=turn.tick, since="")


def _is_of_its_resume(turn: NotDone) -> bool:
    """Return whether it was the agent's resume that was broken; where it is no more, that is mended."""
    is_agent = paths.AGENT_NAME.match(turn.agent) and turn.error == "ConfigError"
    return bool(is_agent) and turn.reason.startswith(paths.resume_file(turn.agent))


def _of_agent(turn: NotDone) -> Trouble:
    what = "failing" if turn.status == "failed" else "takes no turn"
    return Trouble(
        f"{what} {_since(turn)}: {turn.reason}",
        hint=FIXES.get(turn.error, "lemming logs {agent}").format(agent=turn.agent),
        about=turn.agent,
        since_tick=turn.since_tick,
        since=turn.since,
    )


def _since(turn: NotDone) -> str:
    when = f" ({turn.since[:19]}Z)" if turn.since else ""
    return f"since tick {turn.since_tick}{when}"


# --- the engine and the machine ------------------------------------------------------------------


def _threads(scope: CheckScope) -> Iterator[Problem]:
    found = fallen(scope.org, SystemClock().now())
    for fall in found:
        often = "once" if fall.times == 1 else f"{fall.times} times in a row"
        text = f"died {often}, at last {fall.at}: {fall.why}"
        fix = "it is started again by itself; logs/engine.log has each time"
        yield Trouble(text, hint=fix, about=f"thread {fall.thread}", since=fall.at)
    if not found:
        yield note("none of the engine has died")


def _backends(scope: CheckScope) -> Iterator[Problem]:
    found = open_circuits(scope.org, SystemClock().now())
    for name, state in found.items():
        text = f"left alone until {state.open_until} after {state.failures} failures in a row: {state.reason}"
        fix = f"mend the backend; delete {paths.CIRCUITS_FILE} to try at once"
        yield Trouble(text, paths.CIRCUITS_FILE, hint=fix, about=name)
    if not found:
        yield note("none is left alone after failures")


def _disk(scope: CheckScope) -> Iterator[Problem]:
    if not os.access(scope.org, os.W_OK | os.X_OK):
        yield Problem(f"{scope.org} is not writable", hint="check its owner and mode")
    free, fix = shutil.disk_usage(scope.org).free, "free some space"
    if free < ROOM_NEEDED_BYTES:
        yield Trouble(f"{free / 1e6:.1f} MB free", hint=fix, about="disk")
    elif free < LITTLE_ROOM_BYTES:
        yield Problem(f"{free / 1e6:.1f} MB free", hint=fix, severity="warning")
    else:
        yield note(f"{free / 1e9:.1f} GB free", fix)


def _tick(scope: CheckScope) -> Iterator[Problem]:
    tick, ticks = load_tick(scope.org), newest_journals(scope.org, 2)
    if running_engine(scope.org):
        yield note(f"{tick} is under way or next")
    elif error := find_next_tick(scope.org, tick, ticks, boot_id=SystemClock().boot_id).error:
        fix = "`lemming repair` says which of the two is right, and mends it"
        text = f"tick.json says {tick}, but {error.message}"
        yield Trouble(text, paths.TICK_FILE, hint=fix, about="tick", since_tick=tick)
    elif has_been_interrupted(scope.org, tick):
        text, fix = f"tick {tick} was interrupted and nothing is running", "`lemming run-once` continues it"
        yield Trouble(text, hint=fix, severity="warning", about="tick", since_tick=tick)
    else:
        yield note(f"{tick} is next")


# --- channels ------------------------------------------------------------------------------------


def _channels(scope: CheckScope) -> Iterator[Problem]:
    if not scope.config or not scope.config.has_channels or why_missing("channels"):
        return
    from lemming.capabilities.channels.states import channel_states
    from lemming.capabilities.serving.serve import is_served

    states = channel_states(scope.org, scope.survey, scope.config)
    found: list[Problem] = [trouble for state in states for trouble in _of_channel(state)]
    served = [one.agent for one in states if one.seen_to_by == "serve"]
    if served and not is_served(Path(scope.org)):
        text = f"nobody sees to {', '.join(served)}: no process here listens for http and mail"
        fix = "lemming run-forever --serve PORT, or `lemming serve` beside it; lemming service --serve PORT"
        found.append(Problem(text, hint=fix, severity="warning"))
    elif states and not found:
        said = ", ".join(f"{one.agent} ({one.arrived} arrived, {one.delivered} went out)" for one in states)
        found.append(note(said))
    yield from found


def _of_channel(channel: ChannelState) -> Iterator[Trouble]:
    see = f"`lemming channels` shows more; options are in {MODELS_FILE}"
    found = []
    if channel.problem:
        found.append((f"the channel cannot be used: {channel.problem}", "lemming validate"))
    if channel.down_since:
        found.append((f"the channel is out of reach since {channel.down_since}: {channel.down_why}", see))
    for one in channel.failing[:1]:
        failed = f"{one['entry']} failed {one['attempts']} times: {one['why']}"
        found.append((f"{channel.waiting} to go out; {failed}", see))
    yield from (Trouble(text, hint=fix, severity="warning", about=channel.agent) for text, fix in found)


def note(text: str, fix: str = "") -> Problem:
    """Return what is so, and needs nothing to be done."""
    return Problem(text, hint=fix, severity="note")


AGENTS = Check("agents", "files", "who fails, or may spend no more, and since when", _agents)
BROKEN = Check("broken", "files", "agents that are out of service because of their resumes", _broken)
THREADS = Check("threads", "files", "threads of the engine that have died", _threads)
BACKENDS = Check("backends", "files", "backends that are left alone after failures", _backends)
DISK = Check("disk", "world", "whether the folder can be written to, and how much room there is", _disk)
TICK = Check("tick", "journals", "tick.json beside the newest journals: which tick is next", _tick)
CHANNELS = Check("channels", "files", "channels that are out of reach, or that nobody listens for", _channels)
CHECKS = (AGENTS, BROKEN, THREADS, BACKENDS, DISK, TICK, CHANNELS)
