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
from conformance.parts import PARTS, get_part, make_refusal_check
from conformance.reading import Violation

MODULES = (ticks, mail, turns, crashes, requests, rules)
"""They register their checks as they are imported."""
ALL_POINTS = 1000


def main(argv: list[str] | None = None) -> int:
    """Run the selected checks. Return 0 if the engine passes, 1 if not, 2 for invalid arguments."""
    parser = argparse.ArgumentParser("python -m conformance", description=__doc__)
    parser.add_argument("--engine", help="the command that runs one tick of the organisation it is started in")
    parser.add_argument("--only", default="", help="checks whose name or a requirement of which has this in it")
    parser.add_argument("--without", default="", help=f"parts left out: {', '.join(PARTS.values())}")
    parser.add_argument("--points", type=int, default=ALL_POINTS, help="kills of a kind at most (all)")
    parser.add_argument("--list", action="store_true", help="name the checks and what they hold")
    options = parser.parse_args(argv)
    excluded_parts = [part_name for part_name in options.without.split(",") if part_name]
    if unknown := {*excluded_parts} - {*PARTS.values()}:
        parser.error(f"--without: there is no part {', '.join(sorted(unknown))}")
    checks = [
        *(candidate for candidate in CHECKS if get_part(candidate) not in excluded_parts),
        *map(make_refusal_check, excluded_parts),
    ]
    selected = [check for check in checks if options.only in f"{check.name} {' '.join(check.requirements)}"]
    if options.list:
        _print_lines(*(f"{check.name}\n    {check.summary} {' '.join(check.requirements)}" for check in selected))
        return 0
    if not options.engine or not selected or options.points < 1:
        parser.error("--engine CMD is needed" if not options.engine else "no check is left to be run")
    try:
        engine = parse_engine_command(options.engine)
    except ValueError as error:
        parser.error(f"--engine: {error}")
    problems = {check: run_check(check, engine, points=options.points) for check in selected}
    failed = [check for check, problem in problems.items() if problem]
    _print_lines(f"{len(selected) - len(failed)} of {len(selected)} checks hold")
    return 1 if failed else 0


def parse_engine_command(command: str) -> list[str]:
    """Return the arguments of a command with absolute file paths, because the command runs in other folders.

    The program is searched on the PATH first, as in a shell: a local folder may have the same name.

    Raises: ValueError for an unknown program.
    """
    arguments = shlex.split(command)
    program = arguments[0] if arguments else ""
    if not shutil.which(program) or os.sep in program:
        arguments[:1] = [os.path.abspath(program)] if os.path.isfile(program) else arguments[:1]
    arguments[1:] = [os.path.abspath(argument) if os.path.exists(argument) else argument for argument in arguments[1:]]
    if not arguments or not shutil.which(arguments[0]):
        raise ValueError(f"there is no program {arguments[0] if arguments else ''}".strip())
    return arguments


def run_check(check: Check, engine: list[str], *, points: int) -> str:
    """Run a check in a temporary folder and print the result. Return the problem, or an empty string."""
    problem = find_problem(check, engine, points=points)
    _print_lines(f"{'FAIL' if problem else 'ok  '}  {check.name}  {' '.join(check.requirements)}")
    if problem:
        _print_lines(f"      {check.summary}", f"      {problem}")
    return problem


def find_problem(check: Check, engine: list[str], *, points: int) -> str:
    """Return the problem of an engine with a check, or an empty string.

    A missing or malformed file also counts as a problem of the engine.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        bench = Bench(Path(folder), engine, points=points)
        try:
            check.run(bench)
        except (Violation, OSError, ValueError, LookupError, TypeError) as error:
            return f"{'' if isinstance(error, Violation) else type(error).__name__ + ': '}{error}"
        finally:
            bench.close()
    return ""


def _print_lines(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
