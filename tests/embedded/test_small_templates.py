"""The templates on real models: every reply is valid, and with 0.5B something sensible comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.import_export.apply_document import load_template
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport

TEMPLATES = ["watch", "newsroom", "desk", "review", "game", "research"]


def made(base: Path, template: str, line: dict[str, Any]) -> Path:
    """Make an organisation of a template whose agents use a model."""
    fs.make_root(base)
    for file, content in load_template(template).items():
        fs.write_atomic(base, file, content)
    models = parse(fs.read_bytes(base / paths.MODELS_FILE, 1 << 20))
    models |= {key: line for key in ("default", "full") if key in models}
    fs.write_atomic(base, paths.MODELS_FILE, dump_compact(models))
    return base


def broken_replies(report: TickReport) -> list[str]:
    """Return what the engine had to ask again, or to leave out, in the turns of a tick."""
    return [remark for turn in report.turns for remark in turn.remarks]


def entries(base: Path, agent: str) -> list[dict[str, Any]]:
    """Return the payloads of an agent's entries, oldest first."""
    return [json.loads(file.read_text())["payload"] for file in sorted(base.glob(f"agents/{agent}/outbox/*"))]


@pytest.mark.model
@pytest.mark.long
@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_smallest_model_gives_valid_replies_in_every_template(base: Path, template: str) -> None:
    small = {"provider": "local", "model": "smollm2-135m-instruct", "prompt": "brief", "max_output_tokens": 256}
    report = run_once(made(base, template, {**small, "deadline_s": 600}))
    assert [turn.reason for turn in report.by_status("failed")] == []
    assert broken_replies(report) == []


@pytest.mark.model
@pytest.mark.long
def test_the_desk_passes_each_ticket_on_and_answers_it(base: Path, qwen: dict[str, Any]) -> None:
    org = made(base, "desk", qwen)
    for _ in range(3):
        report = run_once(org)
        assert [*report.by_status("failed"), *broken_replies(report)] == []
    passed = entries(org, "desk")
    assert [entry["target"] in ("invoices", "product") for entry in passed] == [True] * 3
    assert len(entries(org, "reviewer")) == 3


@pytest.mark.model
@pytest.mark.long
def test_review_writes_the_new_hours_once_a_person_approves(base: Path, qwen: dict[str, Any]) -> None:
    org = made(base, "review", qwen)
    run_once(org)
    assert run(["-C", str(org), "approve", "--all", "--tool", "file_write", "--yes"]) == 0
    run_once(org)
    page = (org / "shared/site/hours.md").read_text()
    assert "Tuesday to Friday" in page
    assert "Saturday" in page


@pytest.mark.model
@pytest.mark.long
def test_the_newsroom_reports_one_fact_a_tick(base: Path, qwen: dict[str, Any]) -> None:
    org = made(base, "newsroom", qwen)
    for _ in range(2):
        assert run_once(org).by_status("failed") == []
    first, second = (entry["text"] for entry in entries(org, "agency"))
    assert "cinnamon rolls" in first
    assert "1,450" in second
    assert "1,450" in entries(org, "editor")[-1]["text"]


@pytest.mark.model
@pytest.mark.long
def test_the_watch_tells_a_person_of_the_full_disk(base: Path, qwen: dict[str, Any]) -> None:
    org = made(base, "watch", qwen)
    for _ in range(2):
        assert run_once(org).by_status("failed") == []
    told = [entry["text"] for entry in entries(org, "watcher") if entry.get("target") in (None, "human")]
    assert any("/var/cache/images" in text for text in told)
