"""Checks of this machine and organisation: the selection of `lemming doctor`."""

from __future__ import annotations

import contextlib
import platform
import stat
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from lemming.journal_tools.repair.damage_repair import find_repairs
from lemming.kernel.base import paths
from lemming.kernel.base.errors import NotAnOrg, Problem
from lemming.kernel.base.problems import make_note, make_warning
from lemming.kernel.base.version import __version__
from lemming.kernel.plugins.capability_loader import find_fact, load_provided
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.tick.validation.checks import Check
from lemming.kernel.tools import iter_shipped_tools
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status
from lemming.libraries.wording import format_count
from lemming.obligations.waiting_items import list_person_inbox, summarize_inbox
from lemming.operations.engine_lock import describe_engine, find_running_engine
from lemming.operations.model_prices import find_price, find_shutdown_date
from lemming.queries.capability_status import list_capability_names
from lemming.queries.checks.check_registry import CheckRun, compute_entries_per_outbox, run_checks
from lemming.queries.checks.file_checks import FILE_CHECKS
from lemming.queries.checks.health_checks import AGENTS, BACKENDS, CHANNELS, DISK, THREADS, TICK
from lemming.queries.model_readiness import check_readiness
from lemming.queries.org_validation import find_agents_problems

PRIVATE_FOLDERS = (".lemming", "logs", "aside", "agents/*/outbox", "agents/*/memory", "agents/*/logs")
"""The private folders, which also protect everything below."""
PRIVATE_LEDGERS = ("agents/*/turns.jsonl", "agents/*/channel.jsonl")

NEEDED = ("pydantic", "typer", "structlog", "tenacity", "openai", "anthropic", "ollama")
OLDEST_PYTHON = (3, 11)
JOURNALS_READ = 20
ENTRIES_READ = 20  # of each outbox, fewer where there are many; `lemming validate --all` reads all
CONNECT_S = 2.0


def _check_python(run: CheckRun) -> Iterator[Problem]:
    text = f"{platform.python_version()} at {sys.executable}, LeMMing {__version__}, {platform.system()}"
    fix = f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    severity = "note" if sys.version_info >= OLDEST_PYTHON else "error"
    yield Problem(text, hint=fix, severity=severity)


def _check_packages(run: CheckRun) -> Iterator[Problem]:
    versions = {name: _find_version(name) for name in NEEDED}
    if missing := [name for name, version in versions.items() if version is None]:
        yield Problem(f"missing packages: {', '.join(missing)}", hint="run `pip install lemming-engine`")
    else:
        yield make_note(", ".join(f"{name} {version}" for name, version in versions.items()))


def _check_workers(run: CheckRun) -> Iterator[Problem]:
    """Yield notes only: `validate` and the check of models name what the workers of this organisation lack."""
    describe_machine = find_fact("workers.describe_machine")
    notes = describe_machine() if describe_machine else ["the capability of workers is not installed"]
    yield from map(make_note, notes)


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_org(run: CheckRun) -> Iterator[Problem]:
    try:
        yield make_note(str(run.org))
    except NotAnOrg as error:
        yield Problem(f"{error.where}: {error.message}", hint=error.hint)


def _check_privacy(run: CheckRun) -> Iterator[Problem]:
    base = Path(run.org)
    readable_paths = []
    if all(_get_mode(folder) & stat.S_IXOTH for folder in (base.resolve(), *base.resolve().parents)):
        patterns = (*PRIVATE_FOLDERS, *PRIVATE_LEDGERS)
        readable_paths = [name for name in patterns if any(_is_world_readable(base, path) for path in base.glob(name))]
    if readable_paths:
        text = f"every user of this machine can read {', '.join(readable_paths)}"
        fix = f"in the organisation's folder: chmod o-rwx {' '.join(readable_paths)}"
        yield make_warning(text, hint=fix)
    else:
        yield make_note("journals, ledgers, outboxes and memories are private to this user")


def _is_world_readable(base: Path, path: Path) -> bool:
    """Return True for a private path that every user of the machine can reach and read."""
    mode = _get_mode(path)
    is_readable = mode & (stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH)
    return bool(is_readable) and all(_get_mode(base / name) & stat.S_IXOTH for name in path.relative_to(base).parents)


def _get_mode(path: Path) -> int:
    """Return the mode of a path; 0 (no access) for a link and for an unreadable path."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(mode) else mode


def _check_damage(run: CheckRun) -> Iterator[Problem]:
    """Yield the repairs of `lemming repair`; none beside an engine, whose unfinished writes may look torn."""
    if find_running_engine(run.org):
        yield make_note("not checked while an engine runs")
        return
    newest = None if run.every else run.newest or JOURNALS_READ
    repairs = find_repairs(run.org, newest=newest, with_outboxes=False)
    for repair in repairs:
        severity = "warning" if repair.kind in ("leftover", "call", "lost") else "error"
        yield Problem(f"{repair.where}: {repair.found}", hint="lemming repair", severity=severity)
    if not repairs:
        yield make_note(f"nothing to repair ({f'newest {newest}' if newest else 'all'} journals)")


def _check_config(run: CheckRun) -> Iterator[Problem]:
    if run.config is None:
        yield Problem(run.config_error.message, hint="lemming validate")


def _check_files(run: CheckRun) -> Iterator[Problem]:
    """Yield a one-line summary of the `lemming validate` problems in files, from fewer entries."""
    a_fifth = max(1, compute_entries_per_outbox(len(run.agent_folders)) // 5)  # none would be taken for no limit
    file_run = CheckRun(run.org, lambda _: run.settings, newest=min(ENTRIES_READ, a_fifth))
    all_problems = [entry_problem for _, problems in run_checks(FILE_CHECKS, file_run) for entry_problem in problems]
    for name in list_capability_names(run.settings, run.survey.agents.values()):
        all_problems += find_agents_problems(name, run.subject)
    errors = [problem for problem in all_problems if problem.is_error]
    agents = format_count(len(run.survey.agents), "agent")
    if all_problems:
        text = f"{agents}, {format_count(len(errors), 'error')}, {format_count(len(all_problems) - len(errors), 'warning')}"
        first, severity = (errors or all_problems)[0], "error" if errors else "warning"
        yield Problem(f"{text}; first: {first}", hint="lemming validate", severity=severity)
    else:
        yield make_note(f"{agents}, no problems (newest {file_run.newest} entries of each)")


def _check_models(run: CheckRun) -> Iterator[Problem]:
    """Yield the readiness of each model used by some agent; unused models are skipped."""
    models, plugins = run.settings.models, run.settings.org.plugins
    for key, names in sorted(run.survey.by_model.items()):
        if key not in models:
            continue  # told by the check of the files
        entry = models[key]
        readiness, shutdown_date = check_readiness(entry, Path(run.org), plugins), find_shutdown_date(entry)
        label = f'"{key}" ({entry.provider} {entry.model}) for {", ".join(names)}'.replace(" )", ")")
        price = find_price(entry)
        costs = f"; {price}" if price and price.checked else ""
        severity = "error" if readiness.is_ready is False else "note"
        yield Problem(f"{label}: {readiness.remark}{costs}", paths.MODELS_FILE, hint=readiness.fix, severity=severity)
        if shutdown_date:
            text = f'"{key}": {entry.model} is shut down on {shutdown_date}'
            fix = f'choose another model for "{key}" in config/models.json'
            yield make_warning(text, hint=fix, file=paths.MODELS_FILE)


def _check_shell(run: CheckRun) -> Iterator[Problem]:
    users = [
        name
        for name, agent in run.survey.agents.items()
        if any(tool.tool_class == "execute" for tool in iter_shipped_tools(agent.permissions.tools))
    ]
    if not users:
        yield make_note("no agent may use the shell")
        return
    name, detail = get_sandbox_status(run.settings.org)
    severity = {"off": "error", "none": "warning"}.get(name, "note")
    fix = "install bubblewrap, or remove the tool from their resumes"
    yield Problem(f"{name} for {', '.join(users)}: {detail}", hint=fix, severity=severity)


def _check_history(run: CheckRun) -> Iterator[Problem]:
    if run.settings.org.history == "off":
        yield make_note("off")
        return
    from lemming.git_history.git_repository import Repository, require_git
    from lemming.libraries.git_program import find_git_version

    require_git()
    repository = Repository(Path(run.org))
    if repository.exists():
        repository.require_usable()
        repository.run("rev-parse", "--git-dir")
        if repository.is_damaged():
            fix = "the next run creates a new one and archives the old one in aside/"
            yield Problem(f"{repository.folder} is damaged", hint=fix)
            return
    version = ".".join(map(str, find_git_version() or ()))
    yield make_note(f"git {version}, {repository.folder if repository.exists() else 'starts with the next tick'}")


def _check_executor(run: CheckRun) -> Iterator[Problem]:
    settings = run.settings.org
    if settings.executor not in provided("executors"):
        yield make_note(settings.executor)
        return
    address = settings.executor_address
    if not run.connect:  # the answer is unpickled, and so may run any code
        fix = "`lemming doctor --connect` checks it, if you trust the cluster"
        yield make_note(f"cluster at {address}: not checked; {fix}")
        return
    connect = load_provided("executors", settings.executor)
    with contextlib.closing(connect(address, connect_s=CONNECT_S)) as cluster:
        workers: dict[str, int] = cluster.count_worker_slots()
    text = f"cluster at {address}: {format_count(len(workers), 'worker')}, {sum(workers.values())} parallel calls"
    fix = f"start some: dask worker {address} --nthreads 64"
    yield Problem(text, hint=fix, severity="note" if workers else "error")


CHECKS = (
    Check("python", "world", "machine", "Python version", _check_python),
    Check("packages", "world", "machine", "required packages", _check_packages),
    Check("embedded", "world", "machine", "package for embedded models",
          lambda run: [make_note(f"xllamacpp {_find_version('xllamacpp') or 'is not installed (optional)'}")]),
    Check("workers", "world", "machine", "git, the sandbox and the harnesses of workers", _check_workers),
    Check("org", "names", "machine", "the organisation's folder", _check_org, stops=True),
    DISK,
    Check("privacy", "names", "machine", "files that other users can read", _check_privacy),
    Check("lock", "names", "machine", "the running engine",
          lambda run: [make_note(f"held by {describe_engine(engine)}" if (engine := find_running_engine(run.org)) else "free")]),
    TICK,
    Check("repair", "journals", "files", "damage that `lemming repair` can fix, from the newest journals", _check_damage),
    Check("config", "files", "files", "readable settings", _check_config, stops=True),
    Check("files", "files", "files", "problems that `lemming validate` reports, with fewer entries", _check_files),
    AGENTS, THREADS, BACKENDS,
    Check("people", "files", "files", "items that wait for a person",
          lambda run: [make_note(summarize_inbox(list_person_inbox(run.org)) or "nothing waits for a person")]),
    Check("models", "world", "machine", "whether each agent's model is ready", _check_models),
    CHANNELS,
    Check("shell", "world", "machine", "the sandbox for commands", _check_shell),
    Check("history", "world", "machine", "git and the history", _check_history),
    Check("executor", "world", "machine", "the cluster for model calls", _check_executor),
)  # fmt: skip
