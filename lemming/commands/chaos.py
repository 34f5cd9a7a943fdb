"""`lemming check chaos`: kill the engine repeatedly on a copy of the organisation and compare the files."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NoReturn

import typer

from lemming.commands.command_context import CommandContext, option
from lemming.commands.run_output import Narrator
from lemming.commands.terminal import format_count, print_data, print_json, print_notice
from lemming.commands.trust import require_workspace_trust
from lemming.evals.case_copy import BILL_FILE, copy_org
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_file import last_record
from lemming.kernel.journal.journal_records import ModelReplied, TickCommitted
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.testing import tree

TICK_ENDED = (0, 1, 5, 6)  # exit status of `run-once` after a completed tick; docs/cli.md
_DIGEST = re.compile(rb'"[0-9a-f]{64}"')
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass
class ChaosResult:
    """Result of a chaos run.

    `doubled`, `lost` and `different` name files that differ from an undisturbed run. `at_once`: maximum number of
    concurrent turns, and so of calls in flight, at a kill.
    """

    seed: int
    at_once: int = 1
    ticks: int = 0
    kills: int = 0
    recoveries: int = 0
    calls: int = 0
    calls_repeated: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def meets_guarantee(self) -> bool:
        """True if no file differs from an undisturbed run and kills repeated only calls in flight."""
        max_repeated = self.kills * self.at_once
        return not (self.doubled or self.lost or self.different) and self.calls_repeated <= max_repeated


def chaos(
    context: CommandContext,
    kills: Annotated[int, option("--kills", "Number of kills.", min=1, max=10_000)] = 20,
    seed: Annotated[int, option("--seed", "Random seed for the kill times.")] = 0,
    answers: Annotated[
        int | None, option("--in-place N", "Do not copy: start a tick here and kill it after N answers.", min=1)
    ] = None,
) -> None:
    """Test crash recovery: kill the engine on a copy and compare.

    A real process runs tick after tick and is killed (SIGKILL) at random times derived from the seed. The
    copy is temporary. Models answer from the journals or from a stand-in, so nothing is paid. Tools with
    outside effects are not called.

    With --in-place, nothing is copied: a tick starts in this organisation as with run-once, and this process is
    killed after N model answers are in the journal. Use run-once to watch the recovery.

    Exit status: 0 the files are the same and no kill repeated more than the calls in flight; 1 otherwise.

    \b
    Examples:
      lemming check chaos
      lemming check chaos --kills 100 --seed 7
      lemming check chaos --in-place 1 || lemming run-once
      lemming check chaos --json | jq .calls_repeated
    """
    base = context.org
    require_workspace_trust(base, can_ask=not context.as_json)
    if answers is not None:
        _run_until_killed(base, answers)
    with TemporaryDirectory(prefix="lemming-chaos-") as folder:
        tally = _count_damage(Path(base), Path(folder), kills, seed)
    print_json("chaos", {**asdict(tally), "is_as_promised": tally.meets_guarantee})
    _print_result(tally)
    if not tally.meets_guarantee:
        raise typer.Exit(1)


def _run_until_killed(base: OrgPath, answers: int) -> NoReturn:
    """Run a tick in this process and kill the process after `answers` model answers."""
    from lemming import engine

    narrator, remaining = Narrator(base, threading.Event()), answers

    def kill_after_answers(event: Event) -> None:
        nonlocal remaining
        narrator.on_event(event)
        remaining -= isinstance(event, ModelReplied)
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    report = engine.run_once(base, notify=kill_after_answers)
    narrator.print_tick_summary(report)
    answer_count = answers - remaining
    command = f"lemming check chaos --in-place {answer_count}, in a tick like this"
    hint = command if answer_count else "choose a tick with model calls"
    raise UsageError(f"the tick had {format_count(answer_count, 'answer')}; nothing was killed", hint=hint)


def _count_damage(base: Path, folder: Path, kills: int, seed: int) -> ChaosResult:
    """Run the copies with and without kills and compare their files."""
    undisturbed = copy_org(base, folder / "calm", kills=kills)
    killed = copy_org(base, folder / "wild", kills=kills)
    tally, first_tick = ChaosResult(seed=seed, at_once=count_concurrent_turns(killed)), load_tick(killed)
    rng = random.Random(seed)  # noqa: S311 - no secret
    longest_s = _run_once(undisturbed)
    while tally.kills < kills:
        tally.recoveries += _is_interrupted(killed)
        engine = _start_tick_process(killed)
        try:
            _, error_text = engine.communicate(timeout=rng.uniform(0, longest_s))
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.communicate()
            tally.kills += engine.returncode < 0
        else:
            _require_tick_ended(engine.returncode, error_text)
        print_notice(f"tick {load_tick(killed)}: {tally.kills} of {format_count(kills, 'kill')}")
    tally.recoveries += _is_interrupted(killed)
    _run_once(killed)
    while load_tick(undisturbed) < load_tick(killed):
        _run_once(undisturbed)
    tally.ticks = load_tick(killed) - first_tick
    calls = Counter((killed / BILL_FILE).read_text().splitlines()) if (killed / BILL_FILE).exists() else Counter()
    tally.calls, tally.calls_repeated = calls.total(), calls.total() - len(calls)
    expected, actual = _collect_files_without_times(undisturbed), _collect_files_without_times(killed)
    tally.doubled = sorted(actual.keys() - expected.keys())
    tally.lost = sorted(expected.keys() - actual.keys())
    tally.different = sorted(path for path in expected.keys() & actual.keys() if expected[path] != actual[path])
    return tally


def count_concurrent_turns(base: Path) -> int:
    """Return the maximum number of concurrent turns of a tick."""
    config, agents = load_config(base), survey_agents(base).agents.values()
    active_agents = sum(config.has_model_turns(agent) for agent in agents)
    return 1 if config.org.executor == "serial" else max(1, min(config.org.parallel_limit, active_agents))


def _run_once(base: Path) -> float:
    """Run one tick undisturbed and return the duration in seconds."""
    engine, started = _start_tick_process(base), time.perf_counter()
    _, error_text = engine.communicate()
    _require_tick_ended(engine.returncode, error_text)
    return time.perf_counter() - started


def _start_tick_process(base: Path) -> subprocess.Popen[str]:
    """Start a process that runs one tick; return once the process holds the lock."""
    command = [sys.executable, "-P", "-m", "lemming", "-C", str(base), "run-once", "--quiet", "--trust"]
    python_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    search = [str(Path(__file__).parents[2]), *(os.path.abspath(folder) for folder in python_path)]
    engine = subprocess.Popen(
        command,
        cwd=base.parent,  # not the current folder: Python would import modules from it
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while engine.poll() is None:
        with suppress(OSError, JsonProblem):
            lock = parse(fs.read_bytes(base / paths.LOCK_FILE, 4096))
            if isinstance(lock, dict) and lock.get("pid") == engine.pid:
                break
        time.sleep(0.001)
    return engine


def _require_tick_ended(status: int, error_text: str) -> None:
    """Raise `LemmingError` if the exit status is not the status of a complete tick."""
    if status not in TICK_ENDED:
        problem = f"the engine ended with {status} on the copy: {error_text.strip()}"
        raise LemmingError(problem, hint="run `lemming doctor`")


def _is_interrupted(base: Path) -> bool:
    """Return True if the current tick was started and not committed."""
    record = last_record(base, load_tick(base))
    return record is not None and not isinstance(record, TickCommitted)


def _collect_files_without_times(base: Path) -> dict[str, bytes]:
    """Return the files of an organisation without its settings; times, and digests of files with times, are blanked."""
    files = {path: raw for path, raw in tree(base).items() if not path.startswith("config/")}
    ledgers = {path: _DIGEST.sub(b"-", raw) for path, raw in files.items() if path.endswith("/turns.jsonl")}
    return {path: _TIME.sub(b"-", raw) for path, raw in {**files, **ledgers}.items()}


def _print_result(tally: ChaosResult) -> None:
    recovered = format_count(tally.recoveries, "recovery", "recoveries")
    print_data(f"{format_count(tally.kills, 'kill')} in {format_count(tally.ticks, 'tick')}, {recovered}")
    max_text = f"{tally.at_once} per kill" + (", one for each parallel turn" if tally.at_once > 1 else "")
    print_data(f"calls: {tally.calls}, {tally.calls_repeated} repeated (at most {max_text})")
    print_data(f"files doubled: {len(tally.doubled)}, lost: {len(tally.lost)}, different: {len(tally.different)}")
    for path in [*tally.doubled, *tally.lost, *tally.different]:
        print_data(f"  {path}")
    verdict = "the files equal those of an undisturbed run" if tally.meets_guarantee else "this breaks the guarantee"
    print_notice(f"{verdict} (seed {tally.seed})", style="green" if tally.meets_guarantee else "red")
