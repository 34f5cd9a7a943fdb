"""The memory store: what is kept comes back, what is broken is reported and never replaced."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, list_memories, load_memories, load_memory, make_memory_effect
from lemming.libraries.memory_files import delete_memory, save_memory
from lemming.memory import append_memory_event, archive_old_memories, compact_memory_list
from lemming.testing import FrozenClock

CLOCK = FrozenClock(datetime(2025, 12, 8, 10, 30, tzinfo=UTC))


def put(base: Path, key: str, text: str) -> Path:
    """Write a memory file as a person would, by hand."""
    file = base / f"agents/planner/memory/{key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_saved_value_comes_back(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "goals", ["goal1", "goal2"])
    assert load_memory(tmp_path, "planner", "goals") == ["goal1", "goal2"]


def test_the_file_has_the_four_keys_of_the_guide_in_their_order(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "goals", ["Analyze Q4 data"], clock=CLOCK)
    text = (tmp_path / "agents/planner/memory/goals.json").read_text()
    assert text == (
        '{\n  "key": "goals",\n  "value": [\n    "Analyze Q4 data"\n  ],\n'
        '  "timestamp": "2025-12-08T10:30:00.000Z",\n  "agent": "planner"\n}\n'
    )


def test_an_absent_memory_is_the_default(tmp_path: Path) -> None:
    assert load_memory(tmp_path, "planner", "goals") is None
    assert load_memory(tmp_path, "planner", "goals", []) == []


def test_a_remembered_null_is_not_the_default(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "goals", None)
    assert load_memory(tmp_path, "planner", "goals", "default") is None


def test_the_effect_writes_nothing_and_equals_what_saving_writes(tmp_path: Path) -> None:
    effect = make_memory_effect("planner", "goals", {"a": 1}, "2025-12-08T10:30:00.000Z")
    assert list(tmp_path.iterdir()) == []
    save_memory(tmp_path, "planner", "goals", {"a": 1}, clock=CLOCK)
    assert (tmp_path / effect.path).read_bytes() == effect.content


def test_the_effect_of_a_reply_is_the_same_and_a_large_one_is_refused_too() -> None:
    now = "2025-12-08T10:30:00.000Z"
    effect = make_memory_effect("planner", "goals", {"a": 1}, now, is_from_reply=True)
    assert replace(effect, memory_value=None) == make_memory_effect("planner", "goals", {"a": 1}, now)
    assert effect.memory_value == json.loads(effect.content)
    with pytest.raises(ToolError, match=f'memory "goals": .*larger than {MEMORY_LIMIT_BYTES} bytes'):
        make_memory_effect("planner", "goals", "x" * MEMORY_LIMIT_BYTES, now, is_from_reply=True)


def test_an_edit_of_what_a_turn_wrote_is_read(tmp_path: Path) -> None:
    effect = make_memory_effect("planner", "goals", [1], "2025-12-08T10:30:00.000Z", is_from_reply=True)
    text = effect.content.decode()
    for base in (tmp_path / "one", tmp_path / "two"):
        put(base, "goals", text)
        assert load_memories(base, "planner").values == {"goals": [1]}
        put(base, "goals", text.replace("1\n", "2\n"))
        assert load_memories(base, "planner").values == {"goals": [2]}
        put(base, "goals", "{")
        assert load_memories(base, "planner").values == {}


def test_a_value_that_is_changed_after_it_was_saved_stays_as_it_was_saved(tmp_path: Path) -> None:
    value = [1]
    save_memory(tmp_path, "planner", "goals", value)
    value.append(2)
    assert load_memories(tmp_path, "planner").values == {"goals": [1]}


@pytest.mark.parametrize(
    "value", [None, 0.1, 1e300, -0.0, 2**53, 2**64 - 1, -(10**4000), "\0é\U0001f600", {"": [{}, []]}]
)
def test_a_value_that_was_read_from_json_needs_no_reading_back(value: Any) -> None:
    found = parse(dump_compact(value))
    kept = make_memory_effect("planner", "goals", found, "2025-12-08T10:30:00.000Z", is_from_reply=True)
    assert replace(kept, memory_value=None) == make_memory_effect("planner", "goals", found, "2025-12-08T10:30:00.000Z")


@pytest.mark.parametrize("key", ["../../../x", "", "a/b", ".hidden", "-x", "a b", "x" * 121, "é", "a.", "a\n"])
def test_a_key_that_could_lead_elsewhere_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ToolError, match="a memory key has 1 to 120 characters"):
        save_memory(tmp_path, "planner", key, 1)
    with pytest.raises(ToolError, match="a memory key has"):
        load_memory(tmp_path, "planner", key)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [["a"], 7, None])
def test_a_key_that_is_not_text_is_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(ToolError, match="a memory key has"):
        save_memory(tmp_path, "planner", key, 1)


def test_an_agent_name_that_could_lead_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="a name has 1 to 63 characters"):
        save_memory(tmp_path, "../evil", "goals", 1)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 10**4400, {1: "a"}, {"a", "b"}, (1, 2), b"raw", object(), "\ud800"],
    ids=["nan", "infinity", "huge", "number-key", "set", "tuple", "bytes", "object", "surrogate"],
)
def test_a_value_that_is_not_json_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ToolError, match='memory "goals"'):
        save_memory(tmp_path, "planner", "goals", value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("depth", [100, 10_000])
def test_a_value_nested_too_deep_is_refused(tmp_path: Path, depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    with pytest.raises(ToolError, match='memory "goals"'):
        save_memory(tmp_path, "planner", "goals", value)


def test_a_value_of_three_megabytes_is_refused_with_the_limit_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=f"larger than {MEMORY_LIMIT_BYTES} bytes"):
        save_memory(tmp_path, "planner", "goals", "x" * 3_000_000)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('{"key": "goals",\n "value": [1, 2', "goals.json:2:", "unexpected end of JSON"),
        ('{"value": 1, "value": 2}', "goals.json:1:14", 'duplicate key "value"'),
        ('{"valve": 1}', "goals.json:1:1", 'expected an object with a "value"'),
        ("[]", "goals.json:1:1", 'expected an object with a "value"'),
        ('{"value": NaN}', "goals.json", "NaN is not JSON"),
    ],
    ids=["cut", "duplicate", "misspelt", "list", "nan"],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, place: str, message: str) -> None:
    put(tmp_path, "goals", text)
    with pytest.raises(CorruptState) as caught:
        load_memory(tmp_path, "planner", "goals")
    assert place in caught.value.where
    assert message in caught.value.message


def test_a_broken_file_is_never_replaced(tmp_path: Path) -> None:
    file = put(tmp_path, "goals", '{"value": [1, 2')
    for save in (save_memory, append_memory_event):
        with pytest.raises(CorruptState, match="the engine does not replace it"):
            save(tmp_path, "planner", "goals", 1)
    assert file.read_text() == '{"value": [1, 2'


def test_a_file_written_by_hand_needs_nothing_but_the_value(tmp_path: Path) -> None:
    put(tmp_path, "goals", '{"value": 5}')
    assert load_memory(tmp_path, "planner", "goals") == 5


def test_a_memory_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"value": "secret"}')
    put(tmp_path, "goals", "").unlink()
    (tmp_path / "agents/planner/memory/goals.json").symlink_to(secret)
    with pytest.raises(CorruptState, match="cannot be read"):
        load_memory(tmp_path, "planner", "goals")


def test_a_pipe_in_the_memory_folder_does_not_hang_the_reader(tmp_path: Path) -> None:
    put(tmp_path, "goals", "").unlink()
    os.mkfifo(tmp_path / "agents/planner/memory/goals.json")
    memories = load_memories(tmp_path, "planner")
    assert memories.values == {}
    assert [problem.file for problem in memories.problems] == ["agents/planner/memory/goals.json"]


def test_keys_are_listed_in_order_and_without_the_archive(tmp_path: Path) -> None:
    for key in ("zeta", "alpha", "a.b"):
        save_memory(tmp_path, "planner", key, 1)
    put(tmp_path, "archive/old", '{"value": 1}')
    put(tmp_path, ".hidden", '{"value": 1}')
    (tmp_path / "agents/planner/memory/README.md").write_text("notes")
    assert list_memories(tmp_path, "planner") == ["a.b", "alpha", "zeta"]


def test_all_memories_are_read_with_their_digests(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "b", {"x": 1})
    save_memory(tmp_path, "planner", "a", 2)
    memories = load_memories(tmp_path, "planner")
    assert list(memories.values.items()) == [("a", 2), ("b", {"x": 1})]
    raw = (tmp_path / "agents/planner/memory/a.json").read_bytes()
    assert memories.digests["a"] == sha256(raw).hexdigest()
    assert memories.problems == ()


def test_a_broken_memory_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "good", 1)
    put(tmp_path, "bad", "{")
    put(tmp_path, "no key", '{"value": 1}')
    memories = load_memories(tmp_path, "planner")
    assert memories.values == {"good": 1}
    assert sorted(memories.digests) == ["bad", "good"]
    assert [(p.file, p.line) for p in memories.problems] == [
        ("agents/planner/memory/bad.json", 1),
        ("agents/planner/memory/no key.json", 0),
    ]


def test_no_memory_folder_is_no_memories(tmp_path: Path) -> None:
    assert load_memories(tmp_path, "planner").values == {}
    assert list_memories(tmp_path, "planner") == []


def test_a_memory_folder_that_is_a_link_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "agents/planner").mkdir(parents=True)
    (tmp_path / "agents/planner/memory").symlink_to(tmp_path)
    assert "must be a real folder" in load_memories(tmp_path, "planner").problems[0].message
    with pytest.raises(CorruptState, match="must be a real folder"):
        list_memories(tmp_path, "planner")


def test_deleting_says_whether_there_was_anything(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "goals", 1)
    assert delete_memory(tmp_path, "planner", "goals") is True
    assert delete_memory(tmp_path, "planner", "goals") is False
    assert list_memories(tmp_path, "planner") == []


def test_compacting_keeps_the_last_entries_and_counts_the_rest(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "log", list(range(105)))
    assert compact_memory_list(tmp_path, "planner", "log", max_entries=100) == 5
    assert load_memory(tmp_path, "planner", "log") == list(range(5, 105))


def test_compacting_a_short_list_does_not_touch_its_file(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "log", [1, 2], clock=CLOCK)
    file = tmp_path / "agents/planner/memory/log.json"
    before = file.stat().st_ino
    assert compact_memory_list(tmp_path, "planner", "log", max_entries=2) == 0
    assert file.stat().st_ino == before


def test_compacting_to_nothing_empties_the_list(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "log", [1, 2])
    assert compact_memory_list(tmp_path, "planner", "log", max_entries=0) == 2
    assert load_memory(tmp_path, "planner", "log") == []


def test_compacting_nothing_removes_nothing(tmp_path: Path) -> None:
    assert compact_memory_list(tmp_path, "planner", "log") == 0
    assert list(tmp_path.iterdir()) == []


def test_compacting_something_else_than_a_list_is_refused(tmp_path: Path) -> None:
    save_memory(tmp_path, "planner", "log", {"a": 1})
    with pytest.raises(ToolError, match="is not a list"):
        compact_memory_list(tmp_path, "planner", "log")
    save_memory(tmp_path, "planner", "other", [1])
    with pytest.raises(ToolError, match="max_entries must be at least 0"):
        compact_memory_list(tmp_path, "planner", "other", max_entries=-1)


def test_events_carry_their_time_and_the_oldest_go_first(tmp_path: Path) -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))
    for number in range(4):
        append_memory_event(tmp_path, "planner", "log", f"event {number}", max_entries=3, clock=clock)
        clock.advance(60)
    assert load_memory(tmp_path, "planner", "log") == [
        {"timestamp": "2026-01-01T00:01:00.000Z", "event": "event 1"},
        {"timestamp": "2026-01-01T00:02:00.000Z", "event": "event 2"},
        {"timestamp": "2026-01-01T00:03:00.000Z", "event": "event 3"},
    ]


def test_old_memories_are_moved_and_named(tmp_path: Path) -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))
    save_memory(tmp_path, "planner", "old", "kept", clock=clock)
    clock.advance(days(20))
    save_memory(tmp_path, "planner", "new", 1, clock=clock)
    clock.advance(days(11))
    assert archive_old_memories(tmp_path, "planner", days_old=30, clock=clock) == ["old"]
    assert list_memories(tmp_path, "planner") == ["new"]
    archived = json.loads((tmp_path / "agents/planner/memory/archive/old.json").read_text())
    assert archived["value"] == "kept"
    assert archive_old_memories(tmp_path, "planner", days_old=30, clock=clock) == []


def test_an_archived_memory_is_never_overwritten(tmp_path: Path) -> None:
    for year in (2020, 2021, 2021, 2021):
        clock = FrozenClock(datetime(year, 1, 1, tzinfo=UTC))
        save_memory(tmp_path, "planner", "goals", year, clock=clock)
        assert archive_old_memories(tmp_path, "planner") == ["goals"]
    archive = tmp_path / "agents/planner/memory/archive"
    assert {file.name: json.loads(file.read_text())["value"] for file in archive.iterdir()} == {
        "goals.json": 2020,
        "goals.20210101T000000000Z.json": 2021,
        "goals.20210101T000000000Z-2.json": 2021,
        "goals.20210101T000000000Z-3.json": 2021,
    }


def test_what_has_no_readable_time_is_not_archived(tmp_path: Path) -> None:
    put(tmp_path, "undated", '{"value": 1}')
    put(tmp_path, "misdated", '{"value": 1, "timestamp": "long ago"}')
    put(tmp_path, "broken", '{"value": 1')
    assert archive_old_memories(tmp_path, "planner", days_old=0) == []
    assert list_memories(tmp_path, "planner") == ["broken", "misdated", "undated"]


def days(count: int) -> float:
    """Return days in seconds."""
    return count * 86_400
