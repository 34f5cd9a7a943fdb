"""Turns by strategies: replayed, rehearsed into a folder, run together and in batches, to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from batch_server import BatchServer
from recorded import Refusing, refuse_models
from strategies_corpus import strategies

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into
from lemming.kernel.providers import register_provider
from lemming.testing import FrozenClock, journal_lines, make_org, resume, tree

TICKS = 4


def ran(base: Path, at_once: int = 1) -> dict[str, bytes]:
    """Run some ticks of the organisation, and return its files but the settings."""
    strategies(base, {"max_parallel": at_once})
    for _ in range(TICKS):
        run_once(base, clock=FrozenClock())
    return {file: content for file, content in tree(base).items() if file != "config/org.json"}


def test_replay_and_verify_ask_nobody_and_agree(base: Path) -> None:
    register_provider("refusing", Refusing)
    ran(base)
    refuse_models(base)
    (base / "agents/dan/resume.json").unlink()  # the critic's words are in the journal
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0


def test_a_replay_into_a_folder_gives_the_same_files(base: Path, again: Path) -> None:
    ran(base)
    assert len(list(replay_into(base, again, list_replayable_ticks(base, None)))) == TICKS
    assert tree(again) == tree(base)


@pytest.mark.sample(3)
@pytest.mark.parametrize("at_once", [2, 8, 64])
def test_turns_at_once_write_the_same(tmp_path: Path, at_once: int) -> None:
    assert ran(tmp_path / "many", at_once) == ran(tmp_path / "one")


def test_a_strategy_in_a_batch_comes_to_the_same(base: Path) -> None:
    server = BatchServer()
    server.start()
    options = {"base_url": f"{server.url}/v1", "batches": True}
    models = {"batchy": {"provider": "openai", "model": "m", "options": options}}
    how = {"model": {"key": "batchy"}, "permissions": {"read_outboxes": []}}
    turns = [{"strategy": "react"}, {"strategy": "reflexion"}]
    agents = [resume(name, **how, turn=turn) for name, turn in zip(("ada", "bob"), turns, strict=True)]
    make_org(base, *agents, models=models)
    report = run_once(base, batch=True)
    server.stop()
    assert [(turn.status, turn.end) for turn in report.turns] == [("done", "done")] * 2
    replied = [record for record in journal_lines(base, 1) if record["type"] == "model_replied"]
    assert [record["batched"] for record in replied] == [True] * len(replied)
    assert run(["-C", str(base), "replay"]) == 0
