"""A turn and a screen say the same of a request: both go by one fold over the entries that concern it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asked import org_of, tick, tried_once
from desk import NAMES, Desk, organisation
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import EVERYTHING

from lemming.capabilities.requests.request_resolver import RequestResolver, iter_affecting_entries
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.libraries.outbox_files import write_person_entry
from lemming.messages import write_outbox_entry
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_view import RequestView
from lemming.testing import resume, say

EVERYBODY = (*NAMES, "human")
WHO = st.sampled_from(EVERYBODY)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "answer", "answer", "hand_on", "cancel"]),
        WHO,
        st.integers(0, 5),
        st.lists(WHO, min_size=1, max_size=3),
        st.integers(0, 3),
        st.sampled_from(["all", "first", 2]),
        st.sampled_from(["", "", "failed", "refused"]),
    ),
    min_size=2,
    max_size=14,
)


def written(steps: list[Any]) -> Desk:
    """Return the entries of agents that ask, answer, hand on and cancel, each about an earlier one."""
    desk, ids, tick = Desk(), list[str](), 1
    for does, author, which, to, later, join, status in steps:
        tick += later // 2
        about = ids[which % len(ids)] if ids else "none"
        extra: dict[str, Any] = {"deadline": 3 * later} if later else {}
        if does == "ask" or not ids:
            parent = {"parent": about} if which else {}
            ids.append(desk.ask(author, to, tick, join=join, **parent, **extra))
        elif does == "answer":
            desk.answer(author, about, tick, **({"status": status} if status else {}))
        elif does == "hand_on":
            desk.hand_on(author, about, to[0], tick)
        else:
            desk.cancel(author, about, tick)
    return desk


def stands(view: RequestView) -> tuple[Any, ...]:
    return (
        view.end,
        view.end_tick,
        view.closed_by.id if view.closed_by else None,
        [(it.target, it.assignee, it.end, it.answer.id if it.answer else None) for it in view.assignments],
    )


@settings(max_examples=1000 if EVERYTHING else 30, deadline=None)
@given(STEPS, st.integers(1, 8))
def test_a_turn_and_a_screen_say_the_same(steps: list[Any], later: int) -> None:
    desk = written(steps)
    tick = max(name.tick for name in desk.entries) + later
    with TemporaryDirectory() as folder:
        base = organisation(Path(folder) / "org")
        for entry in desk.entries.values():
            write_outbox_entry(base, entry.agent, entry)
        mail = build_tick_context(Organisation.from_path(base), load_config(base), tick).mail

        def moving(author: str, since: int) -> Iterator[tuple[EntryName, OutboxEntry]]:
            names = mail.past_names(author)
            return iter_affecting_entries(mail, names.all[names.next_index(since - 1) :])

        known = RequestResolver(mail, moving)
        for view in desk.requests(tick):
            in_turn = known.resolve(view.entry)
            assert stands(in_turn.view) == stands(view)
            held = {
                name for name in EVERYBODY if not in_turn.is_resolved_for_assignee(name) and view.was_assignee(name)
            }
            assert held <= {*view.assignees}


def test_who_else_was_asked_takes_no_turn_once_there_are_as_many_answers_as_are_wanted(base: Path) -> None:
    quiet = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    late = {"agent": "cyd", "tick": 1, "error": "Unavailable"}
    org_of(base, *(resume(name, **quiet) for name in NAMES), script=[late, {"reply": say("yes", kind="response")}])
    tried_once(base)
    asked = {"text": "yes?", "target": ["ada", "bob", "cyd"], "join": 2}
    write_person_entry(base, "human", tick=1, kind="request", payload=asked, tags=[], created_at="")
    turns = [turn for _ in range(3) for turn in tick(base).turns if turn.agent in NAMES and turn.calls]
    assert [turn.agent for turn in turns] == ["ada", "bob"]
    assert [it.end for it in load_requests(base).requests] == ["answered"]
