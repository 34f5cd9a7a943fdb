"""The log of a channel: several processes add to it, and each reads of it only what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.capabilities.channels.channel_log import ChannelLog, ChannelLogs
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.organisation import Organisation
from lemming.testing import make_org, resume

NOW = SystemClock().now()
LINE = {"at": "2026-01-01T00:00:00.000Z", "did": "received", "entry": "door_000001_000000000000", "from": "x"}


@pytest.fixture
def org(base: Path) -> Path:
    """An organisation with one channel."""
    return make_org(base, resume("door"))


def log_of(base: Path) -> ChannelLog:
    """Return the log as another process has it."""
    return Organisation(base).get_cache(ChannelLogs).get_log("door")


def receive(log: ChannelLog, *messages: str) -> None:
    for message in messages:
        log.append("received", NOW, message=message, entry=f"entry of {message}")


def test_what_others_add_is_read_and_nothing_counts_twice(org: Path) -> None:
    one, other = log_of(org), log_of(org)
    receive(one, "a", "b")
    receive(other, "c")
    receive(one, "d")
    with other.lock_for_writing() as writer:
        writer.append("received", NOW, message="e", entry="entry of e")
        writer.append("received", NOW, message="f", entry="entry of f")
    receive(one, "g")
    for log in (one, other, log_of(org)):
        assert [*log.history.messages] == [*"abcdefg"]
        assert log.history.counts["received"] == 7


def test_a_line_that_is_being_written_is_read_once_it_is_whole(org: Path) -> None:
    log, file = log_of(org), org / "agents/door/channel.jsonl"
    receive(log, "a")
    half = dump_compact({**LINE, "message": "b"})
    with file.open("ab") as written:
        written.write(half[:30])
        written.flush()
        assert [*log.history.messages] == ["a"]
        written.write(half[30:] + b"\n")
    assert [*log.history.messages] == ["a", "b"]


def test_a_line_with_a_hole_that_another_process_cut_off_is_forgotten(org: Path) -> None:
    log, file = log_of(org), org / "agents/door/channel.jsonl"
    receive(log, "a")
    with file.open("ab") as written:
        written.write(b"\0" * 200 + b"\n")
    assert [*log.history.messages] == ["a"]
    receive(log_of(org), "b", "c", "d")  # which cuts it off first
    assert [*log.history.messages] == ["a", "b", "c", "d"]


def test_a_log_that_was_replaced_is_read_anew(org: Path) -> None:
    log, file = log_of(org), org / "agents/door/channel.jsonl"
    receive(log, "a", "b", "c")
    other = file.with_suffix(".new")
    other.write_bytes(b"".join(dump_compact({**LINE, "message": name}) + b"\n" for name in "xyzuvw"))
    other.replace(file)
    assert [*log.history.messages] == [*"xyzuvw"]
    file.unlink()
    assert [*log.history.messages] == []


def bytes_read() -> int:
    """Return how many bytes this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("others", [False, True], ids=["own", "others"])
def test_a_message_costs_the_same_however_many_came_before(org: Path, *, others: bool) -> None:
    if not Path("/proc/self/io").exists():
        pytest.skip("the system does not count what is read")
    costs, file = [], org / "agents/door/channel.jsonl"
    for lines in (300, 3000):
        file.write_bytes(b"".join(dump_compact({**LINE, "message": f"{n}"}) + b"\n" for n in range(lines)))
        log, writer = log_of(org), log_of(org)
        receive(log, "first")
        receive(writer if others else log, "second")
        assert len(log.history.messages) == lines + 2
        before = bytes_read()
        receive(writer if others else log, "third")
        assert len(log.history.messages) == lines + 3
        costs.append(bytes_read() - before)
    assert costs[1] < costs[0] + 1000
