"""Whatever sample of a reply stands in docs, templates, examples or prompts is a valid reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.reply_json import CONTRACT_KEYS, find_objects

ROOT = Path(__file__).parents[2]
# The guide is kept as it was given, and shows the contract in a notation of its own.
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name != "architecture-guide.md"),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "lemming").rglob("*.md")),
]
SCRIPTS = sorted(
    file for folder in ("examples", "lemming/templates") for file in (ROOT / folder).rglob("answers.jsonl")
)


def replies_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the replies of four keys in a value, outermost first."""
    if isinstance(value, list):
        for item in value:
            yield from replies_in(item)
    elif isinstance(value, dict) and not CONTRACT_KEYS.isdisjoint(value) and "properties" not in value:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from replies_in(item)


def samples_of(page: Path) -> list[dict[str, Any]]:
    """Return the sample replies of a page: in its blocks of code, and in what is marked as code."""
    text = page.read_text()
    found = [it for sample in find_objects(text, is_strict=True) for it in replies_in(sample.value)]
    quoted = [json.loads(it) for it in re.findall(r'`(\{"outbox_entries".*?\})`', text)]
    return [*found, *quoted]


def require_valid(reply: dict[str, Any]) -> None:
    parsed = parse_reply(json.dumps(reply), kinds=MESSAGE_KINDS, keep="all")
    assert (parsed.remarks, parsed.left_out) == ((), ())


SAMPLES = [(page, samples) for page in PAGES if (samples := samples_of(page))]


@pytest.mark.parametrize(("page", "samples"), SAMPLES, ids=lambda it: it.name if isinstance(it, Path) else "")
def test_samples_of_a_page_are_valid_replies(page: Path, samples: list[dict[str, Any]]) -> None:
    for sample in samples:
        require_valid(sample)


def test_the_pages_that_teach_the_reply_are_among_them() -> None:
    assert {"formats.md"} <= {page.name for page, _ in SAMPLES}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda it: str(it.relative_to(ROOT)))
def test_recorded_answers_of_templates_and_examples_are_valid_replies(script: Path) -> None:
    lines = [json.loads(line) for line in script.read_text().splitlines()]
    # Others are verdicts of judges.
    replies = [it for line in lines if isinstance(it := line.get("reply"), dict) and not CONTRACT_KEYS.isdisjoint(it)]
    assert replies
    for reply in replies:
        require_valid(reply)
