"""Assign the prompt to each recorded answer of the templates by replaying the steps of their pages.

python -m benchmarks.recordings      after a change of instructions, files or entries in prompts

A line reached by two prompts appears twice. A line reached by no prompt is an error.
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

from lemming.capabilities.scripted_models import scripted_provider
from lemming.capabilities.scripted_models.scripted_provider import ScriptLine, question_digest
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.providers import Reply, Request
from lemming.testing import FrozenClock

TEMPLATES = Path(__file__).parent.parent / "lemming/templates"
ANSWERS = "config/answers.jsonl"
NIGHT, NINE_IN_BERLIN = datetime(2026, 11, 23, 3, tzinfo=UTC), datetime(2026, 11, 23, 8, 1, tzinfo=UTC)
Json = dict[str, Any]


def main() -> None:
    """Rewrite the answers of each template."""
    for template in PLAYBOOKS:
        (TEMPLATES / template / ANSWERS).write_text(build_answers(template))


def build_answers(template: str) -> str:
    """Return the recorded answers of a template with their prompts. Exit if a line is never used."""
    recorded_lines = [json.loads(line) for line in (TEMPLATES / template / ANSWERS).read_text().splitlines()]
    unkeyed = _remove_duplicates(
        [{key: value for key, value in line.items() if key != "question"} for line in recorded_lines]
    )
    questions: dict[int, list[str]] = {number: [] for number in range(len(unkeyed))}
    quiet = redirect_stdout(io.StringIO())
    with TemporaryDirectory() as folder, _record_questions(unkeyed, questions), quiet:
        PLAYBOOKS[template](Path(folder), unkeyed)
    if unasked := [unkeyed[number] for number, line_questions in questions.items() if not line_questions]:
        sys.exit(f"{template}: nothing asks for {json.dumps(unasked[0])[:200]}")
    return "".join(
        json.dumps({**_get_position(line), "question": question, **line}, ensure_ascii=False) + "\n"
        for number, line in enumerate(unkeyed)
        for question in dict.fromkeys(questions[number])
    )


def _get_position(line: Json) -> Json:
    return {key: line[key] for key in ("agent", "tick", "step") if key in line}


def _remove_duplicates(lines: list[Json]) -> list[Json]:
    return [line for number, line in enumerate(lines) if line not in lines[:number]]


@contextmanager
def _record_questions(unkeyed: list[Json], questions: dict[int, list[str]]) -> Iterator[None]:
    """Record the prompt for each line. Meanwhile the provider reads lines without prompts."""
    play = scripted_provider._reply_from_line
    numbers = {_make_line_key(line["agent"], line["reply"]): number for number, line in enumerate(unkeyed)}

    def play_and_record(line: ScriptLine, request: Request) -> Reply:
        questions[numbers[_make_line_key(line.agent, line.reply)]].append(question_digest(request.messages))
        return play(line, request)

    scripted_provider._reply_from_line = play_and_record
    try:
        yield
    finally:
        scripted_provider._reply_from_line = play


def _make_line_key(agent: str, reply: Any) -> str:
    return json.dumps([agent, reply])


def _make_org(folder: Path, lines: list[Json], name: str, template: str) -> Path:
    base = folder / name
    assert run(["init", str(base), "--template", template, "--quiet"]) == 0
    (base / ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return base


def _play_ticks(template: str, ticks: int, folder: Path, lines: list[Json]) -> None:
    base = _make_org(folder, lines, "org", template)
    for _ in range(ticks):
        run_once(base)
    run(["-C", str(base), "eval", "--quiet"])


def _play_watch(folder: Path, lines: list[Json]) -> None:
    base = _make_org(folder, lines, "org", "watch")
    run(["-C", str(base), "eval", "--quiet"])
    clock = FrozenClock(NIGHT)
    run_once(base, clock=clock)
    clock.time = NINE_IN_BERLIN
    run_once(base, clock=clock)
    run(["-C", str(base), "eval", "--quiet"])


def _play_review(folder: Path, lines: list[Json]) -> None:
    for decision in ("approve", "deny"):
        base = _make_org(folder, lines, decision, "review")
        run_once(base)
        assert run(["-C", str(base), decision, "--all", "--tool", "file_write", "--yes"]) == 0
        run_once(base)
    run(["-C", str(base), "eval", "--quiet"])


PLAYBOOKS: dict[str, Callable[[Path, list[Json]], None]] = {
    "desk": partial(_play_ticks, "desk", 2),
    "research": partial(_play_ticks, "research", 2),
    "watch": _play_watch,
    "review": _play_review,
    "game": partial(_play_ticks, "game", 4),
}

if __name__ == "__main__":
    main()
