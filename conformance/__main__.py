"""Run the checks against an engine: `python -m conformance --engine "lemming run-once --quiet --trust"`."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from conformance import crashes, mail, requests, rules, ticks, turns
from conformance.bench import Bench
from conformance.check import CHECKS, Check
from conformance.parts import PARTS, part_of, refusing
from conformance.reading import Broken

MODULES = (ticks, mail, turns, crashes, requests, rules)
"""They register their checks as they are imported."""
ALL_POINTS = 1000


def main(words: list[str] | None = None) -> int:
    """Run the checks that are asked for; return 0 when the engine passes, 1 when not, 2 for wrong words."""
    parser = argparse.ArgumentParser("python -m conformance", description=__doc__)
    parser.add_argument(
        "--engine", help="the command that runs one tick of the organisation it is started in"
    )
    parser.add_argument(
        "--only", default="", help="checks whose name or a requirement of which has this in it"
    )
    parser.add_argument("--without", default="", help=f"parts left out: {', '.join(PARTS.values())}")
    parser.add_argument("--points", type=int, default=ALL_POINTS, help="kills of a kind at most (all)")
    parser.add_argument("--list", action="store_true", help="name the checks and what they hold")
    given = parser.parse_args(words)
    left_out = [part for part in given.without.split(",") if part]
    if unknown := {*left_out} - {*PARTS.values()}:
        parser.error(f"--without: there is no part {', '.join(sorted(unknown))}")
    checks = [*(it for it in CHECKS if part_of(it) not in left_out), *map(refusing, left_out)]
    chosen = [check for check in checks if given.only in f"{check.name} {' '.join(check.holds)}"]
    if given.list:
        _say(*(f"{check.name}\n    {check.words} {' '.join(check.holds)}" for check in chosen))
        return 0
    if not given.engine or not chosen or given.points < 1:
        parser.error("--engine CMD is needed" if not given.engine else "no check is left to be run")
    try:
        engine = engine_in(given.engine)
    except ValueError as error:
        parser.error(f"--engine: {error}")
    problems = {check: run(check, engine, points=given.points) for check in chosen}
    failed = [check for check, problem in problems.items() if problem]
    _say(f"{len(chosen) - len(failed)} of {len(chosen)} checks hold")
    return 1 if failed else 0


def engine_in(command: str) -> list[str]:
    """Return a command's words, files by their whole paths: it is started in other folders.

    The program is looked for on the PATH first, as a shell does: a folder here may be called like it.
    Raises ValueError for a command that is none.
    """
    words = shlex.split(command)
    program = words[0] if words else ""
    if not shutil.which(program) or os.sep in program:
        words[:1] = [os.path.abspath(program)] if os.path.isfile(program) else words[:1]
    words[1:] = [os.path.abspath(word) if os.path.exists(word) else word for word in words[1:]]
    if not words or not shutil.which(words[0]):
        raise ValueError(f"there is no program {words[0] if words else ''}".strip())
    return words


def run(check: Check, engine: list[str], *, points: int) -> str:
    """Run one check in a temporary folder and say how it ended; return what is wrong, or nothing."""
    problem = trouble(check, engine, points=points)
    _say(f"{'FAIL' if problem else 'ok  '}  {check.name}  {' '.join(check.holds)}")
    if problem:
        _say(f"      {check.words}", f"      {problem}")
    return problem


def trouble(check: Check, engine: list[str], *, points: int) -> str:
    """Return why an engine does not pass a check; nothing if it does.

    A file that is missing or has another form than the specification says is the engine's mistake too.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        bench = Bench(Path(folder), engine, points=points)
        try:
            check.run(bench)
        except (Broken, OSError, ValueError, LookupError, TypeError) as error:
            return f"{'' if isinstance(error, Broken) else type(error).__name__ + ': '}{error}"
        finally:
            bench.close()
    return ""


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
