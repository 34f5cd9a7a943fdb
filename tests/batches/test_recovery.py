"""Batches across the end of a process: what was sent is waited for, and is not sent again."""

from __future__ import annotations

import pytest
from batch_desk import AGENTS, Desk, question

from lemming.capabilities.batches.batch_records import BatchAwaited, BatchSent
from lemming.kernel.base.errors import Unavailable
from lemming.testing import Crash


def die(desk: Desk) -> None:
    with pytest.raises(Crash):
        desk.ask(*AGENTS)
    desk.on_pause = desk.on_record = bool
    desk.server.looks = 1


def crash(*_: object) -> None:
    raise Crash


def test_the_id_is_on_the_disk_before_anything_is_waited_for(one_desk: Desk) -> None:
    one_desk.server.looks, one_desk.on_pause = 1000, crash
    die(one_desk)
    assert one_desk.kinds() == one_desk.synced == ["batch_announced", "batch_sent"]
    sent = one_desk.records[-1]
    assert isinstance(sent, BatchSent)
    assert sent.batch in one_desk.server.batches
    assert [item["agent"] for item in sent.items] == list(AGENTS)


def test_a_second_attempt_waits_for_the_batch_of_the_first(desk: Desk) -> None:
    desk.server.looks, desk.on_pause = 1000, crash
    die(desk)
    assert all(reply.batched for reply in desk.ask(*AGENTS).values())
    assert (len(desk.server.batches), desk.server.live) == (1, [])
    awaited = {record.agent for record in desk.records if isinstance(record, BatchAwaited)}
    assert awaited == set(AGENTS)


def test_a_second_attempt_waits_even_if_its_question_has_changed(one_desk: Desk) -> None:
    one_desk.server.looks, one_desk.on_pause = 1000, crash
    die(one_desk)
    changed = question("ada")._replace(model_name="other")
    assert one_desk.batches().complete(one_desk.entry, changed).batched
    assert len(one_desk.server.batches) == 1


def test_a_second_attempt_without_batches_waits_and_sends_no_more(one_desk: Desk) -> None:
    one_desk.server.looks, one_desk.on_pause = 1000, crash
    die(one_desk)
    batches = one_desk.batches(sends=False)
    assert one_desk.ask("ada", batches=batches)["ada"].batched
    assert not one_desk.ask("ada", batches=batches, step=1)["ada"].batched
    assert (len(one_desk.server.batches), len(one_desk.server.live)) == (1, 1)


@pytest.mark.parametrize("looks", [1, 1000])
def test_a_crash_before_the_id_is_recorded_finds_the_batch_again(desk: Desk, looks: int) -> None:
    desk.on_record = lambda kind: kind == "batch_sent" and crash()
    die(desk)
    del desk.records[-1]
    desk.server.looks = 2
    assert all(reply.batched for reply in desk.ask(*AGENTS).values())
    assert len(desk.server.batches) == 1


def test_a_crash_before_it_was_sent_sends_it_once(one_desk: Desk) -> None:
    one_desk.on_record = crash
    die(one_desk)
    assert one_desk.server.batches == {}
    assert all(reply.batched for reply in one_desk.ask(*AGENTS).values())
    assert len(one_desk.server.batches) == 1


def test_a_batch_older_than_the_announcement_is_somebody_elses(desk: Desk) -> None:
    desk.ask(*AGENTS)
    desk.records.clear()
    desk.clock.advance(3600)
    desk.on_record = crash
    die(desk)
    desk.ask(*AGENTS)
    assert len(desk.server.batches) == 2


def test_a_stop_leaves_the_batch_to_the_next_attempt(one_desk: Desk) -> None:
    one_desk.server.looks, one_desk.on_pause = 1000, one_desk.stop.set
    with pytest.raises(Unavailable, match="left to the next run"):
        one_desk.ask(*AGENTS)
    assert len(one_desk.pauses) == 1
    one_desk.stop.clear()
    one_desk.server.looks, one_desk.on_pause = 1, bool
    assert all(reply.batched for reply in one_desk.ask(*AGENTS).values())
    assert len(one_desk.server.batches) == 1
