"""What strangers say waits in review: no model is shown it before a person lets it in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from approvals_org import by_hand, lemming, make, requests, shown, tick

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import iter_person_requests
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import say

SECRET = "pull the red lever"
IN = {"at": "in", "then": "ask", "when": {"field": "from", "op": "is", "value": "web"}}


def with_stranger(base: Path, *, gates: list[dict[str, Any]] | None = None, **blocks: Any) -> Path:
    """Make an organisation in which ada reads web, for whom strangers write."""
    may = {"read_outboxes": ["web", "human"], "tools": []}
    make(
        base,
        gates=gates or [IN],
        script=blocks.pop("script", [{"reply": say("seen", kind="message")}]),
        **{"permissions": may, **blocks},
    )
    resume = {"name": "web", "model": {"key": "human"}, "permissions": {"read_outboxes": []}}
    plain = {**json.loads((base / "agents/human/resume.json").read_text()), **resume}
    fs.write_atomic(base, "agents/web/resume.json", dump_pretty(plain))
    return base


def test_an_entry_waits_until_a_person_lets_it_in_and_nobody_pays_for_that(tmp_path: Path) -> None:
    base = with_stranger(tmp_path)
    tick(base)  # whatever is new to a new agent
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    turn = tick(base)
    assert turn
    assert (turn.status, turn.end, turn.calls) == ("waiting", "waits", 0)
    assert turn.reason == "nothing is shown before human decides"
    (request,) = requests(base)
    assert SECRET not in json.dumps(request.payload)
    assert request.payload["call"]["args"] == {"entry": "web/00000002_hi"}
    assert request.payload["call"]["why"] == "it is by web"
    assert tick(base) is None
    assert len(requests(base)) == 1

    assert lemming(base, "approve", request.id) == 0
    turn = tick(base)
    assert turn
    assert turn.calls == 1
    assert SECRET in shown(base, 4)
    assert tick(base) is None
    assert [it.turns for it in replay_ticks(base, [2, 4])] == [1, 1]


def test_what_a_person_does_not_let_in_is_never_shown(tmp_path: Path) -> None:
    base = with_stranger(tmp_path)
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    assert lemming(base, "deny", requests(base)[0].id) == 0
    assert tick(base) is None
    by_hand(base, "human", 4, "go", kind="message", target="ada", text="go on")
    turn = tick(base)
    assert turn
    assert "go on" in shown(base, 4)
    assert SECRET not in shown(base, 4)
    by_hand(base, "human", 5, "more", kind="message", target="ada", text="more")
    tick(base)
    assert SECRET not in shown(base, 5)
    assert len(requests(base)) == 1


def test_what_others_say_is_shown_meanwhile(tmp_path: Path) -> None:
    base = with_stranger(tmp_path, schedule={"run_every_n_ticks": 1})
    by_hand(base, "web", 1, "hi", kind="message", target="ada", text=SECRET)
    by_hand(base, "human", 1, "hello", kind="message", target="ada", text="hello ada")
    turn = tick(base)
    assert turn
    assert turn.calls == 1
    assert "hello ada" in shown(base, 1)
    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["message", "request"]
    lemming(base, "approve", requests(base)[0].id)
    for number in (2, 3):
        tick(base)
        assert (SECRET in shown(base, number)) == (number in (2, 3))
    assert SECRET not in shown(base, 1)


def test_a_request_of_a_stranger_is_no_task_before_it_is_let_in(tmp_path: Path) -> None:
    base = with_stranger(tmp_path, turn={"take": "one"}, schedule={"wake": "addressed"})
    by_hand(base, "web", 1, "please", kind="request", target="ada", text=SECRET)
    turn = tick(base)
    assert turn
    assert (turn.calls, turn.request) == (0, "")
    lemming(base, "approve", requests(base)[0].id)
    turn = tick(base)
    assert turn
    assert turn.request == "web/00000001_please"
    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["request", "response"]


def test_silence_lets_nothing_in(tmp_path: Path) -> None:
    base = with_stranger(tmp_path, gates=[{**IN, "expires": 1, "because": "it is a stranger"}])
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    assert requests(base)[0].payload["call"]["why"] == "it is a stranger"
    assert tick(base) is None
    assert tick(base) is None
    by_hand(base, "human", 5, "go", kind="message", target="ada", text="go on")
    tick(base)
    assert SECRET not in shown(base, 5)
    assert {it.end for it in iter_person_requests(read_state(base, "ada").kept)} == {"denied"}


def test_the_list_shows_what_waits_and_the_entry_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = with_stranger(tmp_path)
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    assert lemming(base, "approvals") == 1
    said = capsys.readouterr().out
    assert "ada asks human for approval of call 2/ada/web/00000002_hi" in said
    assert SECRET not in said
    assert lemming(base, "approvals", requests(base)[0].id) == 1
    assert SECRET in capsys.readouterr().out


@pytest.mark.parametrize("edited", [{"entry": "web/00000002_other"}, {"entry": 3}])
def test_who_lets_an_entry_in_cannot_put_another_in_its_place(tmp_path: Path, edited: dict[str, Any]) -> None:
    base = with_stranger(tmp_path)
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    yes = {"reply_to": requests(base)[0].id, "decision": "approve", "target": "ada", "args": edited}
    by_hand(base, "human", 3, "yes", **yes)
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert SECRET in shown(base, 3)
    assert tick(base) is None


def test_a_person_is_asked_again_where_the_request_was_taken_away(tmp_path: Path) -> None:
    base = with_stranger(tmp_path)
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    (base / requests(base)[0].file).unlink()
    tick(base)
    (again,) = requests(base)
    assert again.tick == 3
    lemming(base, "approve", again.id)
    tick(base)
    assert SECRET in shown(base, 4)


def test_what_a_turn_could_not_write_it_has_not_asked(tmp_path: Path) -> None:
    notes = say("", memory_updates=[{"key": "x", "value": 1}])
    base = with_stranger(tmp_path, script=[{"reply": notes}], schedule={"run_every_n_ticks": 1})
    by_hand(base, "web", 1, "hi", kind="message", target="ada", text=SECRET)

    def spoil(operation: str, path: str) -> None:
        if path == "agents/ada/memory/x.json" and operation == "rename":
            (base / path).mkdir(parents=True)

    with fs.observe_changes(spoil):
        turn = tick(base)
    assert turn
    assert turn.error == "DiskError"
    assert requests(base) == []
    assert [*iter_person_requests(read_state(base, "ada").kept)] == []


def test_a_turn_that_was_shown_something_does_not_say_that_it_waits_for_a_person(tmp_path: Path) -> None:
    looks = say("", tool_calls=[{"tool": "list_agents", "args": {}}])
    base = with_stranger(tmp_path, script=[{"reply": looks}], turn={"max_steps": 1})
    turn = tick(base)
    assert turn
    assert (turn.status, turn.reason) == ("waiting", "1 tool result for its next turn")


@pytest.mark.parametrize(("second", "asked"), [(["human"], ["human"]), (["web"], [])])
def test_two_gates_that_ask_about_an_entry_need_a_person_whom_both_name(
    tmp_path: Path, second: list[str], asked: list[str]
) -> None:
    base = with_stranger(tmp_path, gates=[{**IN, "persons": ["human"]}, {**IN, "persons": second}])
    tick(base)
    by_hand(base, "web", 2, "hi", kind="message", target="ada", text=SECRET)
    tick(base)
    assert [request.payload["target"] for request in requests(base)] == asked
