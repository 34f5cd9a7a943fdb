"""Files that go with an entry: looked at when it is written, with what is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.attachments.attachments_capability import FILES_LIMIT
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.tools import EngineTool, ToolRegistry, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.strategies import CallResult, Steps, Turn, strategy
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

BOTH = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
CHART = b"\x89PNG chart"


def made(base: Path, *attachments: Any, tools: list[str] | None = None, **reply: Any) -> Path:
    """Make an organisation whose agent says one thing, with these attachments, and run it once."""
    may = {"read_outboxes": [], "tools": ["attach", "file_write"] if tools is None else tools, "file_access": BOTH}
    entry = {"kind": "report", "payload": {"text": "see", "attachments": [*attachments]}, "tags": []}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": reply.pop("max_steps", 1)}),
        script=[{"agent": "ada", "step": 0, "reply": say("", **{"outbox_entries": [entry], **reply})},
                {"reply": say("seen")}],
    )  # fmt: skip
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/chart.png").write_bytes(CHART)
    run_once(base, clock=FrozenClock())
    return base


def entries(base: Path) -> list[dict[str, Any]]:
    files = sorted((base / "agents/ada/outbox").glob("*.json"))
    return [entry["payload"] for entry in map(json.loads, (file.read_text() for file in files))]


def attached(base: Path) -> Any:
    return next(payload["attachments"] for payload in entries(base) if "attachments" in payload)


def results(base: Path) -> list[dict[str, Any]]:
    return [line for line in journal_lines(base, 1) if line["type"] == "tool_finished"]


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_the_engine_fills_in_what_is_in_the_file(tmp_path: Path) -> None:
    base = made(tmp_path / "org", {"path": "shared/chart.png"}, "./shared/chart.png")
    assert attached(base) == [{"path": "shared/chart.png", "sha256": digest(CHART)}] * 2


def test_one_file_needs_no_list(tmp_path: Path) -> None:
    entry = {"kind": "report", "payload": {"text": "see", "attachments": "shared/chart.png"}, "tags": []}
    base = made(tmp_path / "org", outbox_entries=[entry])
    assert attached(base) == [{"path": "shared/chart.png", "sha256": digest(CHART)}]


def test_a_file_that_the_same_reply_writes_can_be_attached(tmp_path: Path) -> None:
    writes = [{"tool": "file_write", "args": {"path": "a.txt", "content": "new"}}]
    base = made(tmp_path / "org", {"path": "a.txt"}, tool_calls=writes)
    assert attached(base) == [{"path": "agents/ada/workspace/a.txt", "sha256": digest(b"new")}]


def test_it_costs_no_further_call_of_the_model(tmp_path: Path) -> None:
    base = made(tmp_path / "org", {"path": "shared/chart.png"}, max_steps=3)
    ended = journal_lines(base, 1)[-2]
    assert (ended["type"], ended["status"], ended["calls"]) == ("turn_committed", "done", 1)


@pytest.mark.parametrize(
    ("attachment", "why"),
    [
        ({"path": "shared/none.png"}, "does not exist"),
        ({"path": "../beta/x"}, "leads outside"),
        ({"path": "/etc/passwd"}, "refused by permissions"),
        ({"path": "shared"}, "is a folder"),
        ({"path": ""}, "an attachment is"),
        ({"file": "x"}, "an attachment is"),
        (5, "an attachment is"),
        ({"path": "shared/chart.png", "sha256": "0" * 64}, "its SHA-256 is"),
    ],
)
def test_what_cannot_be_attached_is_left_out_and_the_model_is_told(attachment: Any, why: str, tmp_path: Path) -> None:
    base = made(tmp_path / "org", attachment, {"path": "shared/chart.png"}, max_steps=2)
    assert attached(base) == [{"path": "shared/chart.png", "sha256": digest(CHART)}]
    [result] = results(base)
    assert (result["tool"], result["success"]) == ("attach", False)
    assert why in result["output"]
    assert [payload["text"] for payload in entries(base)].count("seen") == 1  # it was asked again


def test_only_so_many_are_looked_at(tmp_path: Path) -> None:
    base = made(tmp_path / "org", *["shared/chart.png"] * (FILES_LIMIT + 1))
    assert attached(base) == []
    [result] = results(base)
    assert f"at most {FILES_LIMIT} files" in result["output"]


def test_an_agent_without_the_tool_writes_what_it_likes_there(tmp_path: Path) -> None:
    base = made(tmp_path / "org", {"path": "anything"}, 5, tools=[])
    assert attached(base) == [{"path": "anything"}, 5]
    assert results(base) == []


def test_the_past_agrees(tmp_path: Path) -> None:
    base = made(tmp_path / "org", {"path": "shared/chart.png"}, {"path": "none"})
    (base / "shared/chart.png").write_bytes(b"another")
    assert [each.tick for each in replay_ticks(base, [1])] == [1]
    assert verify_org(base).errors == []


def test_a_turn_that_is_shown_no_images_has_nothing_of_them_on_record(tmp_path: Path) -> None:
    base = made(tmp_path / "org", {"path": "shared/chart.png"}, {"path": "none"})
    (started,) = (line for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert "given" not in started  # nor had it in journals of before there were capabilities
    (tmp_path / "again").mkdir()
    assert [it.tick for it in replay_into(base, tmp_path / "again", [1])] == [1]
    assert attached(tmp_path / "again") == [{"path": "shared/chart.png", "sha256": digest(CHART)}]
    assert tree(tmp_path / "again") == tree(base)


def test_turns_at_once_come_to_the_same(tmp_path: Path) -> None:
    def files(base: Path, at_once: int) -> dict[str, bytes]:
        may = {"read_outboxes": [], "tools": ["attach", "file_append"], "file_access": BOTH}
        entry = {"kind": "report", "payload": {"text": "", "attachments": [{"path": "shared/log.txt"}]}, "tags": []}
        adds = [{"tool": "file_append", "args": {"path": "shared/log.txt", "content": "x"}}]
        script = [
            {"agent": "a0", "reply": say("", outbox_entries=[entry], tool_calls=adds)},
            {"reply": say("", outbox_entries=[entry])},
        ]
        agents = [resume(f"a{number}", permissions=may) for number in range(4)]
        make_org(base, *agents, script=script, org={"max_parallel": at_once})
        run_once(base, clock=FrozenClock())
        return tree(base, without=(".lemming", "logs", "config"))

    alone = files(tmp_path / "1", 1)
    assert digest(b"x").encode() in b"".join(alone.values())
    for at_once in (2, 8, 64):
        assert files(tmp_path / str(at_once), at_once) == alone


class Post(EngineTool):
    """Writes an entry that names a file."""

    name, description = "post", "Posts a file."

    def plan(self, context: ToolContext, path: str) -> ToolResult:
        """Have the entry written."""
        entry = NewEntry("report", {"attachments": [{"path": path}]}, [])
        return ToolResult(True, "posted", entries=(entry,))


@pytest.fixture
def called() -> Iterator[list[CallResult]]:
    """What calls of `post` come to, which the strategy "posting" makes for itself after a reply."""
    came_to: list[CallResult] = []

    @strategy("posting")
    def steps(turn: Turn) -> Steps:
        reply = yield from turn.ask_reply(turn.prompt)
        came_to.append((yield from turn.call("post", {"path": "shared/chart.png"})))
        came_to.append((yield from turn.call("post", {"path": "agents/bob/workspace/own.txt"})))
        yield from turn.act(reply)
        return "done"

    ToolRegistry.register(Post())
    yield came_to
    ToolRegistry.unregister("post")
    unregister("strategy", "posting")


@pytest.mark.parametrize("judged", [False, True])
def test_what_a_strategys_own_calls_write_is_looked_at_too(
    tmp_path: Path, called: list[CallResult], judged: bool
) -> None:
    base = tmp_path / "org"
    may = {"read_outboxes": [], "tools": ["attach", "post"], "file_access": BOTH}
    ada = resume("ada", permissions=may, turn={"strategy": "posting"})
    if judged:
        ada["verify"] = {"by": {"model": "scripted"}}
    passes = {"contains": "Judge", "reply": {"passes": True, "reason": ""}}
    make_org(base, ada, resume("bob"), script=[passes, {"reply": say("said")}])
    for file in ("shared/chart.png", "agents/bob/workspace/own.txt"):
        (base / file).parent.mkdir(parents=True, exist_ok=True)
        (base / file).write_bytes(CHART)
    turn = next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")
    assert (turn.status, turn.reason) == ("done", "")
    found = [payload["attachments"] for payload in entries(base) if "attachments" in payload]
    assert sorted(found, key=len) == [[], [{"path": "shared/chart.png", "sha256": digest(CHART)}]]
    assert [(it.success, it.output, it.outcome) for it in called] == [(True, "posted", "ok")] * 2
    assert [it.tick for it in replay_ticks(base, [1])] == [1]
    assert verify_org(base).errors == []
