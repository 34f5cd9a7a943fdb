"""What commands that look print with `--json` is in one schema, which is made from the types of the facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from terminal import Lemming

from lemming.engine import run_once
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.format_schemas import get_schema
from lemming.queries.output_schemas import list_output_schemas
from lemming.queries.views.agents_view import build_agents_view
from lemming.testing import make_org, resume, say

ASKS = {"kind": "request", "payload": {"text": "may I?", "target": "human", "deadline": 9}, "tags": ["x"]}
LOOKING = (
    "status", "agents list", "agents show ada", "credits show", "waiting", "requests", "cost", "plan",
    "cost --by model", "cost --by request", "cost --by tick", "cost --by day", "plan --why ada bob", "tick",
    "plan --ticks 3", "plan --until 2d", "tick 1 --prompts", "outbox ada", "inbox human", "inbox bob",
    "memory list ada", "channels", "calendar", "findings", "graph", "metrics", "history", "logs", "trust", "doctor",
    "check --list",
)  # fmt: skip


@pytest.fixture
def lively(base: Path, lemming: Lemming) -> Lemming:
    """A `lemming` in an organisation in which there is something of everything to show."""
    script = [
        {"agent": "ada", "tick": 1, "reply": {**say("hello"), "outbox_entries": [ASKS]}},
        {"agent": "bob", "reply": "no"},
        {"reply": say("hi", memory_updates=[{"key": "k", "value": [1]}])},
    ]
    door = {"provider": "folder", "options": {"folder": "post"}}
    models = {"human": {"provider": "human"}, "clock": {"provider": "clock"}, "door": door}
    make_org(
        base,
        resume("ada", credits={"max_credits": 9}, permissions={"read_outboxes": ["human", "clock"]}),
        resume("bob", turn={"repairs": 0}, permissions={"read_outboxes": ["ada"]}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["ada"]}),
        resume("clock", model={"key": "clock"}),
        resume("post", model={"key": "door"}),
        script=script,
        models=models,
        org={"history": "git", "timezone": "Europe/Berlin"},
    )
    jobs = {"jobs": {"daily": {"agent": "ada", "text": "how is it?", "cron": "0 9 * * *"}}}
    (base / "config/calendar.json").write_text(json.dumps(jobs))
    (base / "agents/broken").mkdir()
    (base / "agents/broken/resume.json").write_text("{")
    save_memory(base, "ada", "seen", {"n": 1})
    payload = {"text": "what?", "target": "ada"}
    write_person_entry(
        base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="2026-01-01T00:00:00Z"
    )
    for _ in range(4):
        run_once(base)
    return lemming


@pytest.mark.long
def test_every_object_is_as_the_schema_says(lively: Lemming) -> None:
    output = Draft202012Validator(get_schema("shown"))
    wrong, kinds = list[str](), set[str]()
    for words in LOOKING:
        for plain in lively(*words.split(), "--json").objects:
            kinds.add(plain["type"])
            found = output.iter_errors(plain)
            wrong += [f"{words}: {it.json_path} {it.message}" for it in found]
    assert wrong == []
    assert kinds >= {kind for kind, _ in list_output_schemas()} - {
        "plan_of",
        "gate",
        "worker",
        "skill",
        "mcp_server",
        "tool",
        "model",
    }  # not used here


def test_who_was_due_by_the_clock_is_so_on_every_screen(base: Path, lemming: Lemming) -> None:
    schedule = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}
    make_org(base, resume("daily", schedule=schedule), resume("often"))
    counter = {"current_tick": 3, "read_at": "2026-01-01T00:00:00.000Z"}
    (base / "tick.json").write_text(json.dumps(counter))
    rows = {row["name"]: (row["next_tick"], row["next_at"]) for row in build_agents_view(base)["rows"]}
    (status,) = lemming("status", "--json").objects
    assert rows == {line["agent"]: (line["next_tick"], line["next_at"]) for line in status["agents"]}
    assert rows["daily"] == (None, "2026-01-01T08:00:00.000Z")
    assert "due since" in lemming("agents", "show", "daily").out


def test_an_agents_limit_is_the_same_in_words_and_in_json(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 20}))
    (base / "config/credits.json").write_text('{"ada": {"max_credits": 7}}')
    assert "0 spent, of 7" in lemming("agents", "show", "ada").out
    (shown,) = lemming("agents", "show", "ada", "--json").objects
    assert (shown["account"]["max_credits"], shown["account"]["overrides"], shown["next_tick"]) == (7, 20, 1)
