"""Health checks: the selection of `lemming status`, also run by `lemming doctor` and the page."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lemming.kernel.agents import Survey
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.problems import make_note
from lemming.kernel.llm.circuit_breaker import open_circuits
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import find_fact, require_fact
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.checks import Check
from lemming.libraries.concurrency.supervised_threads import list_thread_failures
from lemming.operations.engine_lock import find_running_engine, is_tick_incomplete
from lemming.operations.next_tick import find_next_tick
from lemming.operations.unfinished_turns import UnfinishedTurn
from lemming.queries.checks.check_registry import CheckRun
from lemming.read_model.journal_ticks import newest_journals


@dataclass(frozen=True)
class ChannelStatus:
    """Status of one channel. `arrived`: messages turned into entries. `refused`: rejected messages.

    `delivered`: sent entries. `waiting`: entries still to send. `gave_up`: abandoned entries. `down_since` is
    empty while the other end is reachable.
    """

    agent: str
    provider: str
    to: str
    seen_to_by: str
    arrived: int
    refused: int
    delivered: int
    waiting: int
    gave_up: int
    down_since: str = ""
    down_why: str = ""
    retry_at: str = ""
    last_refused: list[dict[str, Any]] = field(default_factory=list)
    last_given_up: list[dict[str, Any]] = field(default_factory=list)
    failing: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""


def load_channel_statuses(base: OrgPath, survey: Survey, config: Config) -> list[ChannelStatus]:
    """Return the status of each channel, by agent name; none if the capability of channels is not installed."""
    load_statuses = find_fact("channels.statuses") if config.has_channels else None
    statuses: list[ChannelStatus] = load_statuses(base, survey, config) if load_statuses else []
    return statuses


FIXES = {
    "AuthenticationFailed": "set the key that config/models.json names, or correct it",
    "CircuitOpen": "it is retried automatically; `lemming doctor` shows the error",
    "ConfigError": "lemming validate",
    "LimitReached": "change what the message names, or wait until the period of the limit is over: docs/models.md",
    "OutOfCredits": "lemming credits grant {agent} AMOUNT",
    "Paused": "lemming unpause",
    "UnknownModel": "lemming models list",
}
_START_TICK = re.compile(r" since tick \d+( \([\dTZ:.-]+\))?")
_MAX_NAMES_SHOWN = 3
MIN_FREE_BYTES, LOW_FREE_BYTES = 64 << 20, 1 << 30


def make_issue(
    about: str,
    text: str,
    hint: str = "",
    file: str = "",
    *,
    tick: int | None = None,
    since: str = "",
    severity: str = "error",
) -> Problem:
    """Return a problem that a person must handle; `tick` and `since` (a timestamp) are set if the start is known."""
    return Problem(text, file, hint=hint, severity=severity, about=about, tick=tick, since=since)


def find_health_issues(run: CheckRun) -> list[Problem]:
    """Return current health issues: failing agents, exhausted credits, unreachable backends, a full disk and others."""
    return [issue for check in CHECKS for issue in check.find(run) if issue.about]


def group_issues(issues: Iterable[Problem]) -> list[Problem]:
    """Return the issues with one for all subjects of the same issue, dated from the first tick.

    A dead backend stops many agents, and each agent would repeat the reason.
    """
    groups: dict[tuple[str, str], list[Problem]] = {}
    for issue in issues:
        hint = _hide_name(issue.hint, issue.about)
        groups.setdefault((_START_TICK.sub("", issue.message), hint), []).append(issue)
    return [_merge_issues(group, hint) for (_, hint), group in groups.items()]


def _hide_name(hint: str, name: str) -> str:
    """Return a hint with AGENT for each word that is the name: an agent may be named "a"."""
    if not name:
        return hint
    return " ".join(part.replace(name, "AGENT") if part.strip("`") == name else part for part in hint.split(" "))


def _merge_issues(group: Sequence[Problem], hint: str) -> Problem:
    first = min(group, key=lambda issue: issue.tick or 0)
    if len(group) == 1:
        return first
    suffix = f" and {len(group) - _MAX_NAMES_SHOWN} more" if len(group) > _MAX_NAMES_SHOWN else ""
    return replace(first, about=", ".join(issue.about for issue in group[:_MAX_NAMES_SHOWN]) + suffix, hint=hint)


def seconds_since_tick(base: OrgPath) -> float | None:
    """Return the seconds since the tick counter last moved, or None if there is no counter file."""
    try:
        return max(0.0, time.time() - (base / paths.TICK_FILE).stat().st_mtime)
    except FileNotFoundError:
        return None


# --- agents --------------------------------------------------------------------------------------


def _check_agents(run: CheckRun) -> Iterator[Problem]:
    agents, is_healthy = run.valid_survey.agents, True
    for name, turn in sorted(run.stopped_turns.items()):
        if name in agents and not agents[name].paused and not _is_resume_failure(turn):
            is_healthy, state = False, "failing" if turn.status == "failed" else "cannot run"
            fix = FIXES.get(turn.error, "read `lemming logs {agent}`").format(agent=name)
            yield _make_dated_issue(turn, state, turn.reason, fix)
    if is_healthy:
        subject = "every agent that is not broken" if run.valid_survey.broken else "every agent"
        yield make_note(f"the last turn of {subject} succeeded")


def _check_broken_resumes(run: CheckRun) -> Iterator[Problem]:
    for name, error in run.valid_survey.broken.items():
        turn, fix = run.stopped_turns.get(name), FIXES["ConfigError"]
        file = paths.resume_file(name) if paths.AGENT_NAME.match(name) else ""
        if turn and _is_resume_failure(turn):
            if turn.tick != turn.since_tick:  # earlier turns can have failed for another reason
                turn = replace(turn, since_tick=turn.tick, since="")
            yield _make_dated_issue(turn, "out of service", str(error), fix, file)
        else:  # no turn was due since
            yield make_issue(name, f"out of service: {error}", fix, file)


def _is_resume_failure(turn: UnfinishedTurn) -> bool:
    """Return True if the turn failed because of a broken resume. A repair of the resume makes the failure obsolete."""
    is_config_error = paths.AGENT_NAME.match(turn.agent) and turn.error == "ConfigError"
    return bool(is_config_error) and turn.reason.startswith(paths.resume_file(turn.agent))


def _make_dated_issue(turn: UnfinishedTurn, state: str, reason: str, fix: str, file: str = "") -> Problem:
    start_time = f" ({turn.since[:19]}Z)" if turn.since else ""
    text = f"{state} since tick {turn.since_tick}{start_time}: {reason}"
    return make_issue(turn.agent, text, fix, file, since=turn.since, tick=turn.since_tick)


# --- the engine and the machine ------------------------------------------------------------------


def _check_threads(run: CheckRun) -> Iterator[Problem]:
    falls = list_thread_failures(run.org, SystemClock().now())
    for fall in falls:
        frequency = "once" if fall.times == 1 else f"{fall.times} times in a row"
        text = f"died {frequency}, most recently at {fall.at}: {fall.why}"
        fix = "it restarts automatically; logs/engine.log records each time"
        yield make_issue(f"thread {fall.thread}", text, fix, since=fall.at)
    if not falls:
        yield make_note("no engine thread has died")


def _check_backends(run: CheckRun) -> Iterator[Problem]:
    circuits = open_circuits(run.org, SystemClock().now())
    for name, state in circuits.items():
        text = f"paused until {state.open_until} after {state.failures} failures in a row: {state.reason}"
        fix = f"fix the backend; delete {paths.CIRCUITS_FILE} to retry immediately"
        yield make_issue(name, text, fix, paths.CIRCUITS_FILE)
    if not circuits:
        yield make_note("no backend is paused after failures")


def _check_disk(run: CheckRun) -> Iterator[Problem]:
    if not os.access(run.org, os.W_OK | os.X_OK):
        yield Problem(f"{run.org} is not writable", hint="check its owner and mode")
    free, fix = shutil.disk_usage(run.org).free, "free some space"
    if free < MIN_FREE_BYTES:
        yield make_issue("disk", f"{free / 1e6:.1f} MB free", fix)
    elif free < LOW_FREE_BYTES:
        yield Problem(f"{free / 1e6:.1f} MB free", hint=fix, severity="warning")
    else:
        yield make_note(f"{free / 1e9:.1f} GB free", fix)


def _check_tick(run: CheckRun) -> Iterator[Problem]:
    tick, ticks = load_tick(run.org), newest_journals(run.org, 2)
    if find_running_engine(run.org):
        yield make_note(f"{tick} is running or next")
    elif error := find_next_tick(run.org, tick, ticks, boot_id=SystemClock().boot_id).to_error:
        fix = "`lemming repair` shows which of the two is right, and fixes it"
        text = f"tick.json says {tick}, but {error.message}"
        yield make_issue("tick", text, fix, paths.TICK_FILE, tick=tick)
    elif is_tick_incomplete(run.org, tick):
        text, fix = (f"tick {tick} was interrupted and nothing is running", "continue it with `lemming run-once`")
        yield make_issue("tick", text, fix, severity="warning", tick=tick)
    else:
        yield make_note(f"{tick} is next")


# --- channels ------------------------------------------------------------------------------------


def _check_channels(run: CheckRun) -> Iterator[Problem]:
    if not run.config or not run.config.has_channels:
        return
    states = load_channel_statuses(run.org, run.survey, run.config)
    problems: list[Problem] = [issue for state in states for issue in _find_channel_issues(state)]
    served_agents = [channel.agent for channel in states if channel.seen_to_by == "serve"]
    if served_agents and not require_fact("channels.is_served")(Path(run.org)):
        text = f"channels of {', '.join(served_agents)} are not served: no process here listens for http and mail"
        fix = "run `lemming run-forever --serve PORT`, or `lemming channels serve` beside it; or `lemming service --serve PORT`"
        problems.append(Problem(text, hint=fix, severity="warning"))
    elif states and not problems:
        traffic = ", ".join(f"{row.agent} ({row.arrived} received, {row.delivered} sent)" for row in states)
        problems.append(make_note(traffic))
    yield from problems


def _find_channel_issues(channel: ChannelStatus) -> Iterator[Problem]:
    make_channel_issue = partial(make_issue, channel.agent, severity="warning")
    fix = f"see `lemming channels`; options are in {paths.MODELS_FILE}"
    if channel.problem:
        yield make_channel_issue(f"the channel is broken: {channel.problem}", "lemming validate")
    if channel.down_since:
        yield make_channel_issue(
            f"the channel has been unreachable since {channel.down_since}: {channel.down_why}", fix
        )
    for delivery in channel.failing[:1]:
        failure_text = f"{delivery['entry']} failed {delivery['attempts']} times: {delivery['why']}"
        yield make_channel_issue(f"{channel.waiting} waiting to be sent; {failure_text}", fix)


AGENTS = Check("agents", "files", "files", "failing agents and agents out of credits", _check_agents)
BROKEN = Check("broken", "files", "files", "agents with a broken resume", _check_broken_resumes)
THREADS = Check("threads", "files", "files", "engine threads that have died", _check_threads)
BACKENDS = Check("backends", "files", "files", "backends paused after failures", _check_backends)
DISK = Check("disk", "world", "machine", "write access and free disk space", _check_disk)
TICK = Check("tick", "journals", "files", "tick.json against the newest journals", _check_tick)
CHANNELS = Check("channels", "files", "files", "unreachable channels, and channels without a server", _check_channels)
CHECKS = (AGENTS, BROKEN, THREADS, BACKENDS, DISK, TICK, CHANNELS)
