"""Names the question of each recorded answer of the templates, by playing what their pages have a person do.

python -m benchmarks.recordings      after a change of what prompts say of instructions, files or entries

A line that two questions lead to is there twice; one that nothing asks for ends with an error.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lemming.capabilities.scripted import scripted
from lemming.capabilities.scripted.scripted import ScriptLine, question_in
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.clock import FrozenClock
from lemming.kernel.providers import Reply, Request

TEMPLATES = Path(__file__).parent.parent / "lemming/templates"
ANSWERS = "config/answers.jsonl"
NIGHT, NINE_IN_BERLIN = datetime(2026, 11, 23, 3, tzinfo=UTC), datetime(2026, 11, 23, 8, 1, tzinfo=UTC)
Json = dict[str, Any]


def main() -> None:
    """Write the answers of each template anew."""
    for template in PLAYED:
        (TEMPLATES / template / ANSWERS).write_text(lines_of(template))


def lines_of(template: str) -> str:
    """Return the recorded answers of a template, each with its question; end where one is never asked for."""
    plain = [json.loads(line) for line in (TEMPLATES / template / ANSWERS).read_text().splitlines()]
    unkeyed = _once_each([{key: value for key, value in line.items() if key != "question"} for line in plain])
    questions: dict[int, list[str]] = {number: [] for number in range(len(unkeyed))}
    quiet = redirect_stdout(io.StringIO())
    with TemporaryDirectory() as folder, _noted(unkeyed, questions), quiet:
        PLAYED[template](Path(folder), unkeyed)
    if unasked := [unkeyed[number] for number, found in questions.items() if not found]:
        sys.exit(f"{template}: nothing asks for {json.dumps(unasked[0])[:200]}")
    return "".join(
        json.dumps({**_first_of(line), "question": question, **line}, ensure_ascii=False) + "\n"
        for number, line in enumerate(unkeyed)
        for question in dict.fromkeys(questions[number])
    )


def _first_of(line: Json) -> Json:
    return {key: line[key] for key in ("agent", "tick", "step") if key in line}


def _once_each(lines: list[Json]) -> list[Json]:
    return [line for number, line in enumerate(lines) if line not in lines[:number]]


@contextmanager
def _noted(unkeyed: list[Json], questions: dict[int, list[str]]) -> Iterator[None]:
    """Note which question each line answers. The provider reads lines without questions meanwhile."""
    play = scripted._play
    numbers = {_named(line["agent"], line["reply"]): number for number, line in enumerate(unkeyed)}

    def noting(line: ScriptLine, request: Request) -> Reply:
        questions[numbers[_named(line.agent, line.reply)]].append(question_in(request.messages))
        return play(line, request)

    scripted._play = noting
    try:
        yield
    finally:
        scripted._play = play


def _named(agent: str, reply: Any) -> str:
    return json.dumps([agent, reply])


def _made(folder: Path, lines: list[Json], name: str, template: str) -> Path:
    base = folder / name
    assert run(["init", str(base), "--template", template, "--quiet"]) == 0
    (base / ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return base


def _plain(template: str, ticks: int, folder: Path, lines: list[Json]) -> None:
    base = _made(folder, lines, "org", template)
    for _ in range(ticks):
        run_once(base)
    run(["-C", str(base), "eval", "--quiet"])


def _watch(folder: Path, lines: list[Json]) -> None:
    base = _made(folder, lines, "org", "watch")
    run(["-C", str(base), "eval", "--quiet"])
    clock = FrozenClock(NIGHT)
    run_once(base, clock=clock)
    clock.time = NINE_IN_BERLIN
    run_once(base, clock=clock)
    run(["-C", str(base), "eval", "--quiet"])


def _review(folder: Path, lines: list[Json]) -> None:
    for word in ("approve", "deny"):
        base = _made(folder, lines, word, "review")
        run_once(base)
        assert run(["-C", str(base), word, "--all", "--tool", "file_write", "--yes"]) == 0
        run_once(base)
    run(["-C", str(base), "eval", "--quiet"])


PLAYED: dict[str, Callable[[Path, list[Json]], None]] = {
    "desk": partial(_plain, "desk", 2),
    "research": partial(_plain, "research", 2),
    "watch": _watch,
    "review": _review,
    "game": partial(_plain, "game", 4),
}

if __name__ == "__main__":
    main()
