"""`lemming doctor`: is this machine, and this organisation, fit to run?"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from lemming.agents import agent_folders, survey_agents
from lemming.base.clock import SystemClock
from lemming.base.errors import LemmingError, NotAnOrg
from lemming.base.version import __version__
from lemming.capabilities.requests.waiting import said_of_waiting, waiting
from lemming.capabilities.sandbox.run import sandbox_status
from lemming.commands.options import AsJson, option
from lemming.commands.org import describe_engine, find_org, has_been_interrupted, running_engine
from lemming.commands.screen import Style, counted, one_line, painted, show, show_json
from lemming.commands.trust import load_settings
from lemming.facts.checks import Opened, problems_of_agents, problems_of_config, share_of_each
from lemming.facts.health import troubles_of
from lemming.facts.privacy import places_open_to_all
from lemming.facts.readiness import readiness_of
from lemming.journal.file import journal_ticks, read_journal
from lemming.llm.prices import price_of, shutdown_of
from lemming.org.config import Config
from lemming.org.organisation import OrgPath
from lemming.plugins.capabilities import why_missing
from lemming.tick.counter import load_tick
from lemming.tick.next_tick import find_next_tick
from lemming.timeline.repair.repair import find_repairs
from lemming.tools import shipped_tools

Level = Literal["ok", "warn", "fail"]

NEEDED = ("pydantic", "typer", "structlog", "tenacity", "openai", "anthropic", "ollama")
OLDEST_PYTHON = (3, 11)
LITTLE_ROOM_BYTES = 1 << 30
JOURNALS_READ = 20
ENTRIES_READ = 20  # of each outbox, fewer where there are many; `lemming validate --all` reads all
CONNECT_S = 2.0
_COLOURS: dict[Level, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `fix` says what to do when it is not well."""

    level: Level
    about: str
    text: str
    fix: str = ""


def doctor(
    ctx: typer.Context,
    connect: Annotated[
        bool, option("--connect", "Connect to the cluster at executor_address, which may run code here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine and this organisation, and say how to fix what is not well.

    Nothing is called, repaired or printed that is secret, and nothing is connected to without --connect. Exit
    status 1 says that something failed.

    \b
    Example:
      lemming doctor --json | jq -r 'select(.level != "ok") | .about + ": " + .fix'
    """
    findings = []
    for finding in look(ctx, connect=connect):
        findings.append(finding)
        if as_json:
            show_json("finding", asdict(finding))
        else:
            show_finding(finding)
    failed = sum(finding.level == "fail" for finding in findings)
    if not as_json:
        warned = sum(finding.level == "warn" for finding in findings)
        show(f"{counted(len(findings), 'check')}: {failed} failed, {counted(warned, 'warning')}")
    if failed:
        raise typer.Exit(1)


def show_finding(finding: Finding) -> None:
    """Print one finding, and what to do about it."""
    level = painted(f"{finding.level:<4}", _COLOURS[finding.level])
    show(f"{level}  {finding.about:<11} {one_line(finding.text, 400)}")
    if finding.fix and finding.level != "ok":
        show(f"{'':<17} fix: {one_line(finding.fix, 400)}")


def look(ctx: typer.Context, *, connect: bool = False) -> Iterator[Finding]:
    """Yield what is found on this machine and in this organisation, one thing after the other."""
    yield from _machine()
    try:
        base = find_org(ctx)
    except NotAnOrg as error:
        yield Finding("fail", "org", f"{error.where}: {error.message}", error.hint)
        return
    yield Finding("ok", "org", str(base))
    yield from _each("disk", lambda: _disk(base))
    yield from _each("privacy", lambda: _privacy(base))
    yield from _each("lock", lambda: _lock(base))
    yield from _each("tick", lambda: _tick(base))
    yield from _each("repair", lambda: _damage(base))
    try:
        config = load_settings(base)
    except LemmingError as error:
        yield Finding("fail", "config", error.message, "lemming validate")
        return
    yield from _each("files", lambda: _files(base, config))
    yield from _each("agents", lambda: _agents(base))
    yield from _each("people", lambda: _people(base))
    yield from _each("models", lambda: _models(base, config))
    yield from _each("channels", lambda: _channels(base, config))
    yield from _each("shell", lambda: _shell(base, config))
    yield from _each("history", lambda: _history(base, config))
    yield from _each("executor", lambda: _executor(config, connect=connect))


def _each(about: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds; an error it raises is a finding too."""
    try:
        yield from look()
    except LemmingError as error:
        place = f"{error.where}: " if error.where else ""
        yield Finding("fail", about, f"{place}{error.message}", error.hint)


def _machine() -> Iterator[Finding]:
    is_new_enough = sys.version_info >= OLDEST_PYTHON
    text = f"{platform.python_version()} at {sys.executable}, LeMMing {__version__}, {platform.system()}"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield Finding("ok" if is_new_enough else "fail", "python", text, f"use Python {oldest} or newer")
    versions = {name: _version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing:
        yield Finding("fail", "packages", f"missing: {', '.join(missing)}", "pip install lemming-engine")
    else:
        yield Finding("ok", "packages", known)
    embedded = _version("xllamacpp")
    yield Finding(
        "ok", "embedded", f"xllamacpp {embedded}" if embedded else "xllamacpp is not installed (optional)"
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _disk(base: OrgPath) -> Iterator[Finding]:
    if not os.access(base, os.W_OK | os.X_OK):
        yield Finding("fail", "disk", f"{base} is not writable", "check its owner and mode")
    free = shutil.disk_usage(base).free
    text = f"{free / 1e9:.1f} GB free" if free >= LITTLE_ROOM_BYTES else f"{free / 1e6:.1f} MB free"
    yield Finding("ok" if free >= LITTLE_ROOM_BYTES else "warn", "disk", text, "free some space")


def _privacy(base: OrgPath) -> Iterator[Finding]:
    if places := places_open_to_all(Path(base)):
        text = f"everybody on this machine may read {', '.join(places)}"
        fix = f"in the organisation's folder: chmod o-rwx {' '.join(places)}"
        yield Finding("warn", "privacy", text, fix)
    else:
        yield Finding("ok", "privacy", "journals, ledgers, outboxes and memories are not open to everybody")


def _lock(base: OrgPath) -> Iterator[Finding]:
    engine = running_engine(base)
    yield Finding("ok", "lock", f"held by {describe_engine(engine)}" if engine else "free")


def _tick(base: OrgPath) -> Iterator[Finding]:
    tick, ticks = load_tick(base), journal_ticks(base)
    if error := find_next_tick(base, tick, ticks, boot_id=SystemClock().boot_id).error:
        fix = "`lemming repair` says which of the two is right, and mends it"
        yield Finding("fail", "tick", f"tick.json says {tick}, but {error.message}", fix)
    elif has_been_interrupted(base, tick):
        yield Finding("warn", "tick", f"tick {tick} was interrupted", "`lemming run-once` continues it")
    else:
        if ticks:
            read_journal(base, ticks[-1])
        yield Finding("ok", "tick", f"{tick} is next, {counted(len(ticks), 'journal')}")


def _damage(base: OrgPath) -> Iterator[Finding]:
    """Yield what `lemming repair` would see to; beside an engine, what it is writing may look torn."""
    if running_engine(base):
        yield Finding("ok", "repair", "not looked at while an engine runs")
        return
    found = find_repairs(base, newest=JOURNALS_READ, with_outboxes=False)
    for repair in found:
        level: Level = "warn" if repair.kind in ("leftover", "call", "lost") else "fail"
        yield Finding(level, "repair", f"{repair.where}: {repair.found}", "lemming repair")
    if not found:
        yield Finding("ok", "repair", f"nothing to repair (newest {JOURNALS_READ} journals)")


def _files(base: OrgPath, config: Config) -> Iterator[Finding]:
    a_fifth = share_of_each(len(agent_folders(base))) // 5  # of what `lemming validate` opens
    opened = Opened(min(ENTRIES_READ, a_fifth))
    problems = [*problems_of_config(base, config), *problems_of_agents(base, config, None, opened)]
    errors = [problem for problem in problems if problem.severity == "error"]
    agents = counted(len(survey_agents(base).agents), "agent")
    if not problems:
        yield Finding(
            "ok", "files", f"{agents}, everything is in order (newest {opened.newest} entries of each)"
        )
        return
    text = f"{agents}, {counted(len(errors), 'error')}, {counted(len(problems) - len(errors), 'warning')}"
    first = (errors or problems)[0]
    yield Finding("fail" if errors else "warn", "files", f"{text}; first: {first}", "lemming validate")


def _agents(base: OrgPath) -> Iterator[Finding]:
    """Yield who fails and why, and which backends are left alone; what is wrong with files is told above."""
    troubles = troubles_of(base, replace(survey_agents(base), broken={}))
    for trouble in troubles:
        yield Finding("fail", "agents", f"{trouble.about}: {trouble.text}", trouble.fix)
    if not troubles:
        yield Finding("ok", "agents", "every agent's latest turn went well")


def _people(base: OrgPath) -> Iterator[Finding]:
    yield Finding("ok", "people", said_of_waiting(waiting(base)) or "nothing waits for a person")


def _models(base: OrgPath, config: Config) -> Iterator[Finding]:
    """Yield a finding for each model that some agent uses; the other lines of the file may wait."""
    users: dict[str, list[str]] = {}
    for name, agent in survey_agents(base).agents.items():
        users.setdefault(agent.model.key, []).append(name)
    for key, names in sorted(users.items()):
        if key not in config.models:
            continue  # told by the check of the files
        entry = config.models[key]
        found, ends = readiness_of(entry, Path(base), config.org.plugins), shutdown_of(entry)
        about = f'"{key}" ({entry.provider} {entry.model}) for {", ".join(names)}'.replace(" )", ")")
        level: Level = "fail" if found.is_ready is False else "ok"
        price = price_of(entry)
        costs = f"; {price}" if price and price.checked else ""
        yield Finding(level, "model", f"{about}: {found.remark}{costs}", found.fix)
        if ends:
            text = f'"{key}": {entry.model} no longer answers from {ends} on'
            yield Finding("warn", "model", text, f'name another model for "{key}" in config/models.json')


def _channels(base: OrgPath, config: Config) -> Iterator[Finding]:
    if not config.has_channels or why_missing("channels"):
        return
    from lemming.capabilities.channels.states import channel_states
    from lemming.capabilities.serving.serve import is_served
    from lemming.facts.channels import troubles_of_channels

    survey = survey_agents(base)
    troubles, found = troubles_of_channels(base, survey, config), channel_states(base, survey, config)
    for trouble in troubles:
        yield Finding("warn", "channels", f"{trouble.about}: {trouble.text}", trouble.fix)
    served = [one.agent for one in found if one.seen_to_by == "serve"]
    if served and not is_served(Path(base)):
        text = f"nobody sees to {', '.join(served)}: no process here listens for http and mail"
        fix = "lemming run-forever --serve PORT, or `lemming serve` beside it; lemming service --serve PORT"
        yield Finding("warn", "channels", text, fix)
    elif found and not troubles:
        said = ", ".join(f"{one.agent} ({one.arrived} arrived, {one.delivered} went out)" for one in found)
        yield Finding("ok", "channels", said)


def _shell(base: OrgPath, config: Config) -> Iterator[Finding]:
    users = [
        name
        for name, agent in survey_agents(base).agents.items()
        if any(tool.tool_class == "execute" for tool in shipped_tools(agent.permissions.tools))
    ]
    if not users:
        yield Finding("ok", "shell", "no agent may use the shell")
        return
    name, detail = sandbox_status(config.org)
    level: Level = {"off": "fail", "none": "warn"}.get(name, "ok")  # type: ignore[assignment]
    fix = "install bubblewrap, or take the tool away from them"
    yield Finding(level, "shell", f"{name} for {', '.join(users)}: {detail}", fix)


def _history(base: OrgPath, config: Config) -> Iterator[Finding]:
    if config.org.history == "off":
        yield Finding("ok", "history", "off")
        return
    from lemming.history.git import Repository, git_version, require_git

    require_git()
    repository = Repository(Path(base))
    if repository.exists():
        repository.check()
        repository.run("rev-parse", "--git-dir")
        if repository.is_damaged():
            fix = "the next run begins it anew and keeps the old one in aside/"
            yield Finding("fail", "history", f"{repository.folder} is damaged", fix)
            return
    version = ".".join(map(str, git_version() or ()))
    kept = str(repository.folder) if repository.exists() else "begins with the next tick"
    yield Finding("ok", "history", f"git {version}, {kept}")


def _executor(config: Config, *, connect: bool) -> Iterator[Finding]:
    if config.org.executor != "dask":
        yield Finding("ok", "executor", config.org.executor)
        return
    address = config.org.executor_address
    if not connect:  # what answers there is unpickled, and so may run whatever it likes
        text = f"cluster at {address}: not looked at; `lemming doctor --connect` does, if you trust it"
        yield Finding("ok", "executor", text)
        return
    from lemming.llm.cluster import DaskCalls

    with contextlib.closing(DaskCalls(address, connect_s=CONNECT_S)) as cluster:
        workers = cluster.workers()
    text = f"cluster at {address}: {counted(len(workers), 'worker')}, {sum(workers.values())} calls at once"
    fix = f"start some: dask worker {address} --nthreads 64"
    yield Finding("ok" if workers else "fail", "executor", text, fix)
