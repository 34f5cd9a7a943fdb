"""The end of a turn under a plugin's capability: it may add entries, and none is lost without its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from evil_capability import Take, texts, values

SAME = "must pass on the"
MADE = (
    "(*effect.entries, turn.make_entry(NewEntry('message', {'text': 'x'}, []), effect.entries, "
    "effect.entries[0].created_at))"
)
OTHER = "tuple(replace(entry, payload={'text': 'other'}) for entry in effect.entries)"
TAKE_BACK = "[entry.identity for entry in turn.entries]"
BYE = "WriteEntry(kind='message', payload={'text': 'bye'}, tags=[], at='2026-01-01T00:00:00Z')"
LOSSES = {
    "all entries": ("return (yield replace(effect, entries=()))", f"{SAME} entries of the turn"),
    "a changed entry": (f"return (yield replace(effect, entries={OTHER}))", f"{SAME} entries of the turn"),
    "an entry past the gates": (f"return (yield replace(effect, entries={MADE}))", f"{SAME} entries of the turn"),
    "entries of a failure": (
        "return (yield replace(effect, failure_entries=effect.entries))",
        f"{SAME} entries of the turn",
    ),
    "files": ("return (yield replace(effect, drops_files=True))", f"{SAME} files and memories of the turn"),
    "the success": ("return (yield replace(effect, end='failed'))", f"{SAME} success or failure of the turn"),
    "an end that is not performed": ("return Allowed(effect)", "must pass on EndTurn, `return (yield effect)`"),
    "another end afterwards": (
        "outcome = yield effect\nreturn Allowed(replace(effect, end='failed'))",
        "must pass on EndTurn, `return (yield effect)`",
    ),
    "a second end": ("yield effect\nreturn (yield effect)", "must yield EndTurn once"),
    "an entry too early": (f"yield {BYE}\nreturn (yield effect)", "must yield WriteEntry in `wrap_turn`, or after"),
    "a withdrawal too early": (
        f"yield Withdraw(entries={TAKE_BACK})\nreturn (yield effect)",
        "must yield Withdraw in `wrap_turn`, or after",
    ),
    "a verb too early": (
        "turn.write_entry(NewEntry('message', {'text': 'bye'}, []), '2026-01-01T00:00:00Z')",
        "entries are written and taken back in `wrap_turn`, or after",
    ),
    "a withdrawal by a verb": (f"turn.withdraw({TAKE_BACK})", "entries are written and taken back in `wrap_turn`"),
    "new tags by a verb": (f"turn.tag_entries({TAKE_BACK}, 'x')", "entries are written and taken back in `wrap_turn`"),
}


@pytest.mark.parametrize(("body", "problem"), LOSSES.values(), ids=[*LOSSES])
def test_the_end_of_a_turn_is_passed_on_with_all_that_it_leaves(
    body: str, problem: str, base: Path, evil: Take
) -> None:
    turn = evil(body, "EndTurn")
    assert turn.status == "failed"
    assert "evil" in turn.reason
    assert problem in turn.reason
    assert texts(base) == []


def test_an_end_may_be_passed_on_as_another_one_that_writes(base: Path, evil: Take) -> None:
    assert evil("return (yield replace(effect, end='done'))", "EndTurn").end == "done"
    assert texts(base) == ["hello"]
    assert values(base)["u"] == 2


ADDITIONS = {
    "an effect after the end": ("intercept", f"outcome = yield effect\nyield {BYE}"),
    "a verb after the end": (
        "intercept",
        "outcome = yield effect\nturn.write_entry(NewEntry('message', {'text': 'bye'}, []), '2026-01-01T00:00:00Z')",
    ),
    "a verb around the turn": (
        "wrap_turn",
        "end = run()\nturn.write_entry(NewEntry('message', {'text': 'bye'}, []), '2026-01-01T00:00:00Z')\nreturn end",
    ),
}


@pytest.mark.parametrize(("hook", "body"), ADDITIONS.values(), ids=[*ADDITIONS])
def test_an_entry_that_is_added_at_the_end_stands_beside_the_others(
    hook: str, body: str, base: Path, evil: Take
) -> None:
    assert evil(body, "EndTurn", hook=hook).status in ("done", "waiting")
    assert texts(base) == ["hello", "bye"]


WITHDRAWALS = {
    "an effect": ("intercept", f"outcome = yield effect\nyield Withdraw(entries={TAKE_BACK})"),
    "a verb": ("wrap_turn", f"end = run()\nturn.withdraw({TAKE_BACK})\nreturn end"),
}


@pytest.mark.parametrize(("hook", "body"), WITHDRAWALS.values(), ids=[*WITHDRAWALS])
def test_the_report_names_the_capability_that_takes_entries_back(hook: str, body: str, base: Path, evil: Take) -> None:
    turn = evil(body, "EndTurn", hook=hook)
    assert texts(base) == []
    assert "evil took back 1 of the entries of the turn" in turn.remarks
