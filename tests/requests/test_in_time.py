"""When an answer is in time: by its tick, and by the moment at which it was made."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import ask, org_of

from lemming.kernel.messages import OutboxEntry
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.org_requests import find_request, load_requests
from lemming.obligations.request_deadlines import is_in_time
from lemming.testing import resume

NINE, TEN, ELEVEN = (f"2026-01-01T{hour:02}:00:00.000Z" for hour in (9, 10, 11))


@pytest.mark.parametrize(
    ("made", "now", "counts"),
    [
        (NINE, ELEVEN, True),
        (TEN, ELEVEN, True),
        (ELEVEN, ELEVEN, False),
        (ELEVEN, NINE, False),
        # One that does not say when was made now.
        ("", NINE, True),
        ("", TEN, True),
        ("", ELEVEN, False),
        ("yesterday", ELEVEN, False),
    ],
)
def test_an_answer_counts_that_was_made_at_the_last_moment_or_before(made: str, now: str, counts: bool) -> None:
    answer = OutboxEntry("yes", 3, "human", "response", {}, created_at=made)
    assert is_in_time(answer, None, TEN, now) is counts


@pytest.mark.parametrize(("until", "counts"), [(None, True), (4, True), (3, True), (2, False)])
def test_an_answer_counts_of_the_last_tick_or_an_earlier_one(until: int | None, counts: bool) -> None:
    answer = OutboxEntry("yes", 3, "human", "response", {}, created_at=ELEVEN)
    assert is_in_time(answer, until, "", ELEVEN) is counts


def test_an_answer_in_the_last_tick_is_late_after_the_last_moment() -> None:
    answer = OutboxEntry("yes", 3, "human", "response", {}, created_at=ELEVEN)
    assert not is_in_time(answer, 3, TEN, ELEVEN)


@pytest.mark.parametrize(("made", "end"), [(NINE, "answered"), (ELEVEN, "expired")])
def test_a_request_whose_answer_came_after_the_last_moment_is_expired(base: Path, made: str, end: str) -> None:
    org_of(base, resume("ada"))
    request = ask(base, "ada", not_after=TEN)
    answer = {"text": "yes", "reply_to": request.id, "target": "human"}
    write_person_entry(base, "ada", tick=1, kind="response", payload=answer, tags=[], created_at=made)
    assert find_request(load_requests(base).requests, request.id).end == end
