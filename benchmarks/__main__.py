"""Run the benchmarks: Markdown on standard output, `benchmarks/results.json` for programs.

Without a subject all usual subjects run, on a memory file system; the overhead of a turn also on the disk of
the current folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import aged, cluster, cold, counts, idle, instructions, memory, overhead, parallel, simulate, workers
from benchmarks.measurement import Measurement, get_file_system
from benchmarks.models import measuring as models
from benchmarks.models.sides import SIDES
from benchmarks.models.turns import TURNS
from benchmarks.options import Options
from benchmarks.peers import measuring
from benchmarks.peers.environments import PEERS
from benchmarks.peers.table import to_wide_markdown
from benchmarks.real import measuring as real
from benchmarks.table import to_json, to_markdown

SUBJECTS: dict[str, Callable[[Options], Iterable[Measurement]]] = {
    "overhead": overhead.measure,
    "cold": cold.measure,
    "idle": idle.measure,
    "parallel": parallel.measure,
    "memory": memory.measure,
    "counts": counts.measure,
    "instructions": instructions.measure,
    "aged": aged.measure,
    "cluster": cluster.measure,
    "workers": workers.measure,
    "simulate": simulate.measure,
    "models": models.measure,
    "peers": measuring.measure,
    "real": real.measure,
}
WIDE_SUBJECTS = {"models", "peers"}  # a column for each figure
EXPLICIT_SUBJECTS = {
    "aged",
    "cluster",
    "models",
    "peers",
    "real",
    "simulate",
    "workers",
}  # what takes too long for "everything"
MEMORY_FOLDER = Path("/dev/shm")
RESULTS_FILE = Path(__file__).parent / "results.json"
QUICK_OPTIONS = {"rounds": 3, "agents": (10, 100), "entries": (0,), "durability": ("off",), "ages": (), "kills": 2}
ON_DISK_OPTIONS = {"agents": (100,), "reading": ("one",), "entries": (0,), "ages": ()}
MODEL_OPTIONS = ("server", "model", "provider", "prompt", "key_env", "recording")
LIST_OPTIONS = ("agents", "reading", "entries", "durability", "ages", "peers", "kinds", "sides")
SINGLE_OPTIONS = ("rounds", "kills", "environments", "org", "ticks", "minutes", *MODEL_OPTIONS)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks of the command line."""
    parser = _make_parser()
    arguments_given = parser.parse_args(arguments)
    if unknown := set(arguments_given.subjects) - SUBJECTS.keys():
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    if "models" in arguments_given.subjects and not arguments_given.server:
        parser.error("models needs a server: --server http://localhost:8080/v1")
    print(f"{describe_machine()}\n", flush=True)
    results: list[Measurement] = []
    for parent, subjects in _plan_runs(arguments_given).items():
        with _temporary_folder(parent) as folder:
            for subject, changes in subjects.items():
                options = dataclasses.replace(_build_options(arguments_given, folder, subject), **changes)
                results += _measure_subject(subject, options, parent)
    report = {"machine": describe_machine(), "measurements": [to_json(measurement) for measurement in results]}
    arguments_given.results.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def _measure_subject(subject: str, options: Options, parent: Path) -> list[Measurement]:
    """Measure a subject and print the table."""
    options.folder.mkdir()
    start_time = time.monotonic()
    rows = [_add_location(row, subject, options.file_system) for row in SUBJECTS[subject](options)]
    shutil.rmtree(options.folder)
    print(f"## {subject.capitalize()}, on {options.file_system} ({parent})\n")
    print(to_wide_markdown(rows) if subject in WIDE_SUBJECTS else to_markdown(rows), flush=True)
    print(f"{subject}: {time.monotonic() - start_time:.0f} s", file=sys.stderr)
    return rows


def _add_location(row: Measurement, subject: str, file_system: str) -> Measurement:
    """Return a row with subject and file system. Times have a target on a memory file system only."""
    applies = row.spread is None or file_system == "tmpfs"
    target = row.target if applies else ""
    return dataclasses.replace(row, subject=subject, file_system=file_system, target=target)


def describe_machine() -> str:
    """Describe the machine behind the figures."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    system = f"{platform.system()} {platform.release()}"
    return f"Python {platform.python_version()}, {system}, {cores} cores, load {load:.1f}"


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subjects",
        nargs="*",
        metavar="subject",
        help=f"{', '.join(SUBJECTS)}; default: all but {', '.join(sorted(EXPLICIT_SUBJECTS))}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds: under a minute")
    parser.add_argument("--full", action="store_true", help="several factors moved at once")
    parser.add_argument("--rounds", type=int, help="interleaved rounds; the median counts")
    parser.add_argument("--agents", type=int, nargs="+", help="numbers of agents (10000 is slow)")
    parser.add_argument("--reading", nargs="+", choices=["one", "all"], help="whom agents read")
    parser.add_argument("--entries", type=int, nargs="+", help="entries in every outbox beforehand")
    parser.add_argument("--durability", nargs="+", choices=["off", "tick", "turn"])
    parser.add_argument("--ages", type=int, nargs="*", help="ticks that an organisation has run before")
    parser.add_argument(
        "--dir", type=Path, default=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None, help="where to measure"
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--kills", type=int, help="how often the run of each peer is killed")
    parser.add_argument("--environments", type=Path, help="where peers are installed, and kept")
    parser.add_argument("--org", type=Path, help="what is simulated is kept here, and gone on with")
    parser.add_argument("--ticks", type=int, help="ticks that are simulated at most")
    parser.add_argument("--minutes", type=float, help="for so long (default: 10)")
    _add_model_options(parser)
    parser.add_argument("--results", type=Path, default=RESULTS_FILE)
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the subject `models`."""
    kinds = [*dict.fromkeys(turn.kind for turn in TURNS)]
    parser.add_argument("--server", help="models: address of a model server, such as http://localhost:8080/v1")
    parser.add_argument("--model", help="models: name of the model; default: the first that the server lists")
    parser.add_argument("--provider", help="models: LeMMing's provider for the server; default: llamacpp")
    parser.add_argument("--prompt", help="models: LeMMing's prompt; default: that of a line without one")
    parser.add_argument("--key-env", metavar="NAME", help="models: the variable with the key for the server")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="models: keep replies, ask only what is new")
    parser.add_argument("--kind", dest="kinds", nargs="+", choices=kinds, metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME", help=", ".join(SIDES))


def _plan_runs(arguments: argparse.Namespace) -> dict[Path, dict[str, dict[str, Any]]]:
    """Return the subjects for each parent folder, each with overrides of the command line's options."""
    parent = arguments.dir or Path.cwd()
    runs: dict[Path, dict[str, dict[str, Any]]] = {
        parent: {subject: {} for subject in arguments.subjects or SUBJECTS.keys() - EXPLICIT_SUBJECTS}
    }
    if not arguments.subjects and not arguments.quick and parent != Path.cwd():
        runs[Path.cwd()] = {"overhead": ON_DISK_OPTIONS}
    return runs


def _build_options(arguments: argparse.Namespace, folder: Path, subject: str) -> Options:
    list_options = {name: tuple(chosen) for name in LIST_OPTIONS if (chosen := getattr(arguments, name)) is not None}
    single_options = {name: chosen for name in SINGLE_OPTIONS if (chosen := getattr(arguments, name)) is not None}
    changes: dict[str, Any] = {**(QUICK_OPTIONS if arguments.quick else {}), **list_options, **single_options}
    return Options(
        folder=folder / subject,
        shared_folder=folder,
        file_system=get_file_system(folder),
        is_full=arguments.full,
        **changes,
    )


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lemming-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was made is removed
    main()
