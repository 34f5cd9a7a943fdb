"""This machine and this organisation, fit to run? What `lemming doctor` asks."""

from __future__ import annotations

import contextlib
import platform
import stat
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from lemming.capabilities.money.prices import price_of, shutdown_of
from lemming.capabilities.requests.waiting import waiting, waiting_text
from lemming.capabilities.sandbox.run import sandbox_status
from lemming.facts.capabilities import names_of_capabilities, problems_with_agents
from lemming.facts.checklist.check import Check, CheckScope, run, share_of_each
from lemming.facts.checklist.files import OF_FILES
from lemming.facts.checklist.standing import AGENTS, BACKENDS, CHANNELS, DISK, THREADS, TICK, note
from lemming.facts.readiness import readiness_of
from lemming.kernel.base.errors import NotAnOrg, Problem
from lemming.kernel.base.version import __version__
from lemming.kernel.base.wording import counted
from lemming.kernel.files.modes import PRIVATE_LEDGERS, PRIVATE_PLACES
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.plugins.shipped import EXECUTORS
from lemming.kernel.tools import shipped_tools
from lemming.service.under_way import describe_engine, running_engine
from lemming.timeline.repair.repair import find_repairs

NEEDED = ("pydantic", "typer", "structlog", "tenacity", "openai", "anthropic", "ollama")
OLDEST_PYTHON = (3, 11)
JOURNALS_READ = 20
ENTRIES_READ = 20  # of each outbox, fewer where there are many; `lemming validate --all` reads all
CONNECT_S = 2.0


def _python(scope: CheckScope) -> Iterator[Problem]:
    text = f"{platform.python_version()} at {sys.executable}, LeMMing {__version__}, {platform.system()}"
    fix = f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    severity = "note" if sys.version_info >= OLDEST_PYTHON else "error"
    yield Problem(text, hint=fix, severity=severity)


def _packages(scope: CheckScope) -> Iterator[Problem]:
    versions = {name: _version(name) for name in NEEDED}
    if missing := [name for name, version in versions.items() if version is None]:
        yield Problem(f"missing: {', '.join(missing)}", hint="pip install lemming-engine")
    else:
        yield note(", ".join(f"{name} {version}" for name, version in versions.items()))


def _embedded(scope: CheckScope) -> Iterator[Problem]:
    embedded = _version("xllamacpp")
    yield note(f"xllamacpp {embedded}" if embedded else "xllamacpp is not installed (optional)")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _org(scope: CheckScope) -> Iterator[Problem]:
    try:
        yield note(str(scope.org))
    except NotAnOrg as error:
        yield Problem(f"{error.where}: {error.message}", hint=error.hint)


def _privacy(scope: CheckScope) -> Iterator[Problem]:
    if places := _open_to_all(Path(scope.org)):
        text = f"everybody on this machine may read {', '.join(places)}"
        fix = f"in the organisation's folder: chmod o-rwx {' '.join(places)}"
        yield Problem(text, hint=fix, severity="warning")
    else:
        yield note("journals, ledgers, outboxes and memories are not open to everybody")


def _open_to_all(base: Path) -> list[str]:
    """Return the private places that everybody on the machine may look into, if they get so far."""
    if not all(_mode(above) & stat.S_IXOTH for above in (base.resolve(), *base.resolve().parents)):
        return []
    return [
        place
        for place in (*PRIVATE_PLACES, *PRIVATE_LEDGERS)
        if any(_is_open(base, found) for found in base.glob(place))
    ]


def _is_open(base: Path, place: Path) -> bool:
    mode = _mode(place)
    if not mode & (stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH):
        return False
    return all(_mode(base / folder) & stat.S_IXOTH for folder in place.relative_to(base).parents)


def _mode(path: Path) -> int:
    """Return a path's mode; 0, so open to nobody, for a link and for what cannot be looked at."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(found) else found


def _lock(scope: CheckScope) -> Iterator[Problem]:
    engine = running_engine(scope.org)
    yield note(f"held by {describe_engine(engine)}" if engine else "free")


def _damage(scope: CheckScope) -> Iterator[Problem]:
    """Yield what `lemming repair` would see to; beside an engine, what it is writing may look torn."""
    if running_engine(scope.org):
        yield note("not looked at while an engine runs")
        return
    newest = None if scope.every else scope.newest or JOURNALS_READ
    found = find_repairs(scope.org, newest=newest, with_outboxes=False)
    for repair in found:
        severity = "warning" if repair.kind in ("leftover", "call", "lost") else "error"
        yield Problem(f"{repair.where}: {repair.found}", hint="lemming repair", severity=severity)
    if not found:
        yield note(f"nothing to repair ({f'newest {newest}' if newest else 'all'} journals)")


def _config(scope: CheckScope) -> Iterator[Problem]:
    if scope.config is None:
        yield Problem(scope.why_no_config.message, hint="lemming validate")


def _files(scope: CheckScope) -> Iterator[Problem]:
    """Yield in one line what `lemming validate` finds in the files alone, of fewer entries."""
    a_fifth = max(1, share_of_each(len(scope.folders)) // 5)  # none would be taken for no limit
    opened = CheckScope(scope.org, lambda _: scope.settings, newest=min(ENTRIES_READ, a_fifth))
    found = [it for _, problems in run(OF_FILES, opened) for it in problems]
    for name in names_of_capabilities(scope.settings, scope.survey.agents.values()):
        found += problems_with_agents(name, scope.org, scope.settings, None)
    errors = [problem for problem in found if problem.severity == "error"]
    agents = counted(len(scope.survey.agents), "agent")
    if found:
        text = f"{agents}, {counted(len(errors), 'error')}, {counted(len(found) - len(errors), 'warning')}"
        first, severity = (errors or found)[0], "error" if errors else "warning"
        yield Problem(f"{text}; first: {first}", hint="lemming validate", severity=severity)
    else:
        yield note(f"{agents}, everything is in order (newest {opened.newest} entries of each)")


def _people(scope: CheckScope) -> Iterator[Problem]:
    yield note(waiting_text(waiting(scope.org)) or "nothing waits for a person")


def _models(scope: CheckScope) -> Iterator[Problem]:
    """Yield what there is to each model that some agent uses; the other lines of the file may wait."""
    models, plugins = scope.settings.models, scope.settings.org.plugins
    for key, names in sorted(scope.survey.by_model.items()):
        if key not in models:
            continue  # told by the check of the files
        entry = models[key]
        found, ends = readiness_of(entry, Path(scope.org), plugins), shutdown_of(entry)
        about = f'"{key}" ({entry.provider} {entry.model}) for {", ".join(names)}'.replace(" )", ")")
        price = price_of(entry)
        costs = f"; {price}" if price and price.checked else ""
        severity = "error" if found.is_ready is False else "note"
        yield Problem(f"{about}: {found.remark}{costs}", MODELS_FILE, hint=found.fix, severity=severity)
        if ends:
            text = f'"{key}": {entry.model} no longer answers from {ends} on'
            fix = f'name another model for "{key}" in config/models.json'
            yield Problem(text, MODELS_FILE, hint=fix, severity="warning")


def _shell(scope: CheckScope) -> Iterator[Problem]:
    users = [
        name
        for name, agent in scope.survey.agents.items()
        if any(tool.tool_class == "execute" for tool in shipped_tools(agent.permissions.tools))
    ]
    if not users:
        yield note("no agent may use the shell")
        return
    name, detail = sandbox_status(scope.settings.org)
    severity = {"off": "error", "none": "warning"}.get(name, "note")
    fix = "install bubblewrap, or take the tool away from them"
    yield Problem(f"{name} for {', '.join(users)}: {detail}", hint=fix, severity=severity)


def _history(scope: CheckScope) -> Iterator[Problem]:
    if scope.settings.org.history == "off":
        yield note("off")
        return
    from lemming.history.git import Repository, git_version, require_git

    require_git()
    repository = Repository(Path(scope.org))
    if repository.exists():
        repository.check()
        repository.run("rev-parse", "--git-dir")
        if repository.is_damaged():
            fix = "the next run begins it anew and keeps the old one in aside/"
            yield Problem(f"{repository.folder} is damaged", hint=fix)
            return
    version = ".".join(map(str, git_version() or ()))
    yield note(f"git {version}, {repository.folder if repository.exists() else 'begins with the next tick'}")


def _executor(scope: CheckScope) -> Iterator[Problem]:
    settings = scope.settings.org
    if settings.executor not in EXECUTORS:
        yield note(settings.executor)
        return
    address = settings.executor_address
    if not scope.connect:  # what answers there is unpickled, and so may run whatever it likes
        yield note(f"cluster at {address}: not looked at; `lemming doctor --connect` does, if you trust it")
        return
    from lemming.capabilities.cluster.calls import DaskCalls

    with contextlib.closing(DaskCalls(address, connect_s=CONNECT_S)) as cluster:
        workers = cluster.workers()
    text = f"cluster at {address}: {counted(len(workers), 'worker')}, {sum(workers.values())} calls at once"
    fix = f"start some: dask worker {address} --nthreads 64"
    yield Problem(text, hint=fix, severity="note" if workers else "error")


CHECKS = (
    Check("python", "world", "the version of Python", _python),
    Check("packages", "world", "the packages that are needed", _packages),
    Check("embedded", "world", "the package that runs models in this process", _embedded),
    Check("org", "names", "whether there is an organisation", _org, stops=True),
    DISK,
    Check("privacy", "names", "what everybody on this machine may read", _privacy),
    Check("lock", "names", "who runs the organisation now", _lock),
    TICK,
    Check("repair", "journals", "what `lemming repair` would see to, by the newest journals", _damage),
    Check("config", "files", "whether the settings can be read", _config, stops=True),
    Check("files", "files", "what `lemming validate` says of the files, of fewer entries", _files),
    AGENTS, THREADS, BACKENDS,
    Check("people", "files", "what waits for a person", _people),
    Check("models", "world", "whether each model that an agent has can be used from here", _models),
    CHANNELS,
    Check("shell", "world", "what keeps commands in their place", _shell),
    Check("history", "world", "git, and the history that it keeps", _history),
    Check("executor", "world", "the cluster that models are asked on", _executor),
)  # fmt: skip
