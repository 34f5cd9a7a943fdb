"""What holds of an organisation after any tick, and what its journal says about a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import load_tick
from lemming.journal_tools.outbox_validation import validate_outbox
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.jsontext import parse
from lemming.kernel.messages import entry_id
from lemming.libraries.outbox_files import read_outbox_entries

NOON = "2026-01-01T00:00:00.000Z"


def assert_sound(base: Path) -> None:
    """Every file parses strictly, and every entry is what its place says."""
    for path in base.rglob("*.json"):
        parse(path.read_bytes())
    for path in [*base.rglob("turns.jsonl"), *base.rglob("*.log")]:  # journals are read strictly anyway
        for line in path.read_bytes().splitlines():
            parse(line, limit_bytes=64 << 20)
    names = list_agent_folders(base)
    ids = {entry_id(tick, name, index) for tick in (1, 2) for name in names for index in range(64)}
    for name in names:
        assert validate_outbox(base, name) == []
        for found in read_outbox_entries(base, name):
            assert found.agent == name
            assert found.id in ids
            assert found.tick < load_tick(base)
            assert found.created_at == NOON


def said(journal: list[dict[str, Any]], agent: str) -> str:
    """Return all that the journal says about an agent's turn, but the reply itself."""
    records = [record for record in journal if record.get("agent") == agent]
    told = [record["output"] for record in records if record["type"] == "tool_finished"]
    ended = next(record for record in records if record["type"] == "turn_committed")
    return "\n".join([ended["reason"], *ended["remarks"], *told])
