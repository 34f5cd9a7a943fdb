"""Run the benchmarks: Markdown on standard output, `benchmarks/results.json` for programs.

Without a subject all of them run, on a memory file system; the overhead of a turn also on the disk of this
folder.
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

from benchmarks import aged, cluster, cold, counts, idle, instructions, memory, overhead, parallel, simulate
from benchmarks.measurement import Measurement, file_system
from benchmarks.models import measuring as models
from benchmarks.models.sides import SIDES
from benchmarks.models.turns import TURNS
from benchmarks.options import Options
from benchmarks.peers import measuring
from benchmarks.peers.environments import PEERS
from benchmarks.peers.table import as_wide_markdown
from benchmarks.real import measuring as real
from benchmarks.table import as_json, as_markdown

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
    "simulate": simulate.measure,
    "models": models.measure,
    "peers": measuring.measure,
    "real": real.measure,
}
WIDE = {"models", "peers"}  # a column for each figure
ON_PURPOSE = {
    "aged",
    "cluster",
    "models",
    "peers",
    "real",
    "simulate",
}  # what takes too long for "everything"
MEMORY = Path("/dev/shm")
RESULTS = Path(__file__).parent / "results.json"
QUICK = {"rounds": 3, "agents": (10, 100), "entries": (0,), "durability": ("off",), "ages": (), "kills": 2}
ON_DISK = {"agents": (100,), "reading": ("one",), "entries": (0,), "ages": ()}
MODEL = ("server", "model", "provider", "prompt", "key_env", "recording")
CHOICES = ("agents", "reading", "entries", "durability", "ages", "peers", "kinds", "sides")
SINGLE = ("rounds", "kills", "environments", "org", "ticks", "minutes", *MODEL)


def main(arguments: list[str] | None = None) -> None:
    """Measure what the command line asks for."""
    parser = _parser()
    wanted = parser.parse_args(arguments)
    if unknown := set(wanted.subjects) - SUBJECTS.keys():
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    if "models" in wanted.subjects and not wanted.server:
        parser.error("models needs a server: --server http://localhost:8080/v1")
    print(f"{machine()}\n", flush=True)
    results: list[Measurement] = []
    for place, subjects in _runs(wanted).items():
        with _folder(place) as folder:
            for subject, changes in subjects.items():
                options = dataclasses.replace(_options(wanted, folder, subject), **changes)
                results += _measured(subject, options, place)
    plain = {"machine": machine(), "measurements": [as_json(measurement) for measurement in results]}
    wanted.results.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")


def _measured(subject: str, options: Options, place: Path) -> list[Measurement]:
    """Measure one subject and print its table."""
    options.place.mkdir()
    began = time.monotonic()
    found = [_placed(row, subject, options.file_system) for row in SUBJECTS[subject](options)]
    shutil.rmtree(options.place)
    print(f"## {subject.capitalize()}, on {options.file_system} ({place})\n")
    print(as_wide_markdown(found) if subject in WIDE else as_markdown(found), flush=True)
    print(f"{subject}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def _placed(row: Measurement, subject: str, file_system: str) -> Measurement:
    """Return a row that says where it was measured. What takes time has its target in memory only."""
    applies = row.spread is None or file_system == "tmpfs"
    target = row.target if applies else ""
    return dataclasses.replace(row, subject=subject, file_system=file_system, target=target)


def machine() -> str:
    """Return what the figures were measured on."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    system = f"{platform.system()} {platform.release()}"
    return f"Python {platform.python_version()}, {system}, {cores} cores, load {load:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subjects",
        nargs="*",
        metavar="subject",
        help=f"{', '.join(SUBJECTS)}; default: all but {', '.join(sorted(ON_PURPOSE))}",
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
        "--dir", type=Path, default=MEMORY if MEMORY.is_dir() else None, help="where to measure"
    )
    parser.add_argument(
        "--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=", ".join(PEERS)
    )
    parser.add_argument("--kills", type=int, help="how often the run of each peer is killed")
    parser.add_argument("--environments", type=Path, help="where peers are installed, and kept")
    parser.add_argument("--org", type=Path, help="what is simulated is kept here, and gone on with")
    parser.add_argument("--ticks", type=int, help="ticks that are simulated at most")
    parser.add_argument("--minutes", type=float, help="for so long (default: 10)")
    _add_models(parser)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def _add_models(parser: argparse.ArgumentParser) -> None:
    """Add what the subject `models` is asked for."""
    kinds = [*dict.fromkeys(turn.kind for turn in TURNS)]
    parser.add_argument(
        "--server", help="models: address of a model server, such as http://localhost:8080/v1"
    )
    parser.add_argument("--model", help="models: name of the model; default: the first that the server lists")
    parser.add_argument("--provider", help="models: LeMMing's provider for the server; default: llamacpp")
    parser.add_argument("--prompt", help="models: LeMMing's prompt; default: that of a line without one")
    parser.add_argument("--key-env", metavar="NAME", help="models: the variable with the key for the server")
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="models: keep replies, ask only what is new"
    )
    parser.add_argument(
        "--kind", dest="kinds", nargs="+", choices=kinds, metavar="KIND", help=", ".join(kinds)
    )
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME", help=", ".join(SIDES)
    )


def _runs(wanted: argparse.Namespace) -> dict[Path, dict[str, dict[str, Any]]]:
    """Return for each place its subjects, and for each subject what differs from the command line there."""
    place = wanted.dir or Path.cwd()
    runs: dict[Path, dict[str, dict[str, Any]]] = {
        place: {subject: {} for subject in wanted.subjects or SUBJECTS.keys() - ON_PURPOSE}
    }
    if not wanted.subjects and not wanted.quick and place != Path.cwd():
        runs[Path.cwd()] = {"overhead": ON_DISK}
    return runs


def _options(wanted: argparse.Namespace, folder: Path, subject: str) -> Options:
    given = {name: tuple(chosen) for name in CHOICES if (chosen := getattr(wanted, name)) is not None}
    single = {name: chosen for name in SINGLE if (chosen := getattr(wanted, name)) is not None}
    changes: dict[str, Any] = {**(QUICK if wanted.quick else {}), **given, **single}
    return Options(
        place=folder / subject,
        shelf=folder,
        file_system=file_system(folder),
        is_full=wanted.full,
        **changes,
    )


@contextmanager
def _folder(place: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lemming-bench-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was made is removed
    main()
