"""`store_read`, `store_write`: who knows the latest writes it, and everybody sees who did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tool_desk import Desk

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import FrozenClock, make_org, resume, say, tree

TOOLS = ["store_read", "store_write", "file_write"]
BOTH = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "org", tools=TOOLS)


def version_of(desk: Desk, key: str) -> str:
    version: str = json.loads(desk.do("store_read", key=key))["version"]
    return version


def test_a_value_is_begun_read_and_written_again(desk: Desk) -> None:
    said = desk.do("store_write", key="plan", value={"step": 1}, expect=None)
    version = version_of(desk, "plan")
    assert said == f'"plan" has version {version} now'
    desk.do("store_write", key="plan", value={"step": 2}, expect=version)
    found = json.loads(desk.do("store_read", key="plan"))
    assert found == {
        "version": version_of(desk, "plan"), "agent": "alpha", "tick": 0, "value": {"step": 2},
    }  # fmt: skip
    assert found["version"] != version
    assert desk.do("store_read") == "plan"


def test_what_somebody_else_has_written_meanwhile_is_not_written_over(desk: Desk) -> None:
    desk.do("store_write", key="plan", value=1, expect=None)
    version = version_of(desk, "plan")
    desk.do("store_write", key="plan", value=2, expect=version)
    why = desk.refusal("store_write", key="plan", value=3, expect=version)
    assert why == (
        f'store_write: "plan" is at version {version_of(desk, "plan")} (alpha wrote it in tick 0): '
        "read it again, and write with that version"
    )
    assert "read it again" in desk.refusal("store_write", key="plan", value=3, expect=None)


def test_a_version_of_what_is_not_there_is_refused(desk: Desk) -> None:
    why = desk.refusal("store_write", key="plan", value=1, expect="0" * 16)
    assert why == 'store_write: "plan" is not there: expect null to begin it'


def test_an_edit_by_hand_gives_a_new_version(desk: Desk) -> None:
    desk.do("store_write", key="plan", value=1, expect=None)
    version = version_of(desk, "plan")
    desk.write("shared/store/plan.json", '{"key": "plan", "value": 5}')
    assert "(it was written)" in desk.refusal("store_write", key="plan", value=3, expect=version)
    assert json.loads(desk.do("store_read", key="plan"))["value"] == 5


def test_a_turn_sees_what_it_has_written_itself(desk: Desk) -> None:
    said = desk.call("store_write", key="a", value=1, expect=None).output
    assert desk.call("store_read").output == "a"
    version = said.split()[3]
    assert desk.call("store_write", key="a", value=2, expect=version).success
    assert "read it again" in desk.refusal("store_write", key="a", value=3, expect=version)


def test_the_grants_hold(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_read=["./shared/store"], allow_write=["./workspace"])
    desk.write("shared/store/a.json", '{"value": 1}')
    assert json.loads(desk.do("store_read", key="a"))["value"] == 1
    assert "allow_write" in desk.refusal("store_write", key="a", value=2, expect=None)
    closed = Desk(tmp_path / "other", tools=TOOLS, allow_read=["./workspace"])
    assert "allow_read" in closed.refusal("store_read", key="a")
    assert "allow_read" in closed.refusal("store_read")


def test_a_damaged_file_is_neither_read_nor_written_over(desk: Desk) -> None:
    file = desk.write("shared/store/a.json", '{"value": ')
    assert "a person must repair or remove shared/store/a.json" in desk.refusal("store_read", key="a")
    assert "a person must repair" in desk.refusal("store_write", key="a", value=1, expect=None)
    assert file.read_text() == '{"value": '


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"key": "../x", "value": 1, "expect": None}, "a memory key has"),
        ({"key": "", "value": 1, "expect": None}, "a memory key has"),
        ({"key": "a.", "value": 1, "expect": None}, "a memory key has"),
        ({"key": "a" * 121, "value": 1, "expect": None}, "a memory key has"),
        ({"key": "a", "value": 1}, "expect"),
        ({"key": "a", "value": 1, "expect": 5}, "expect"),
        ({"key": "a", "expect": None}, "value"),
        ({"key": "a", "value": "x" * 300_000, "expect": None}, "cannot be kept"),
        ({"key": 1, "value": 1, "expect": None}, "key"),
        ({"key": "a", "value": float("nan"), "expect": None}, 'store "a"'),
    ],
)
def test_wrong_arguments_are_refused_in_words(desk: Desk, arguments: dict[str, Any], why: str) -> None:
    assert why in desk.refusal("store_write", **arguments)


def test_an_unknown_key_is_answered_with_the_nearest(desk: Desk) -> None:
    desk.do("store_write", key="budget", value=1, expect=None)
    assert 'did you mean "budget"?' in desk.refusal("store_read", key="buget")


# --- several at once ----------------------------------------------------------------------------


def counting(base: Path, at_once: int) -> dict[str, bytes]:
    """Let six agents begin the same key in one tick, and then each write with the version it read."""
    may = {"read_outboxes": [], "tools": TOOLS, "file_access": BOTH}
    begin = {"tool": "store_write", "args": {"key": "n", "value": "begun", "expect": None}}
    read = {"tool": "store_read", "args": {"key": "n"}}
    names = [f"a{number}" for number in range(6)]
    make_org(
        base,
        *(resume(name, permissions=may) for name in names),
        script=[{"reply": say("counting", tool_calls=[begin, read])}],
        org={"max_parallel": at_once},
    )
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert verify_org(base).findings == ()
    return tree(base, without=(".lemming", "logs", "config"))


def test_turns_at_once_write_what_turns_one_after_another_write(tmp_path: Path) -> None:
    alone = counting(tmp_path / "1", 1)
    kept = json.loads(alone["shared/store/n.json"])
    assert (kept["agent"], kept["tick"], kept["value"]) == ("a0", 1, "begun")
    for at_once in (2, 8, 64):
        assert counting(tmp_path / str(at_once), at_once) == alone


def test_validate_and_verify_name_a_file_that_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "org"
    counting(base, 8)
    (base / "shared/store/n.json").write_text('{"key": "n", "val')
    (base / "shared/store/-n.json").write_text('{"value": 1}')
    assert [finding.kind for finding in verify_org(base).findings] == ["damage"]
    assert run(["-C", str(base), "validate"]) == 3
    told = capsys.readouterr()
    assert "shared/store/n.json:1:" in told.out + told.err
    assert "shared/store/-n.json" in told.out + told.err
