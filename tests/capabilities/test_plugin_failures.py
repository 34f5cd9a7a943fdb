"""A plugin's capability that fails, or whose values the kernel cannot use, is named, with a place and a fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from evil_capability import ONLY, Take

from lemming.journal_tools.replay.replay_runtime import ReplayMismatch
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.answer_source import JournaledAnswers
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.queries.org_validation import find_capability_problems, validate_agents
from lemming.testing import journal_lines

HOOKS = {
    "interceptor": ("return None", "evil.interceptor (", "must return an Interceptor, got NoneType"),
    "another name": (
        "return super().interceptor(turn)._replace(name='gates', facts=('trust',))",
        "evil.interceptor (",
        "must keep the name, the facts and `asks_persons` of its class",
    ),
    "wrap_turn": ("run()", "evil.wrap_turn (", "must return an end of the turn, got None: `return run()`"),
    "due": ("return 5", "evil.due (", "must yield or return a list, got int"),
    "prepare": ("d = {}\nd['a'] = d\nreturn d", "evil.prepare (", "more than 64 levels at /a/a"),
    "a deep one": (
        "d = {}\nfor _ in range(200): d = {'a': d}\nreturn d",
        "evil.prepare (",
        "more than 64 levels at /a/a",
    ),
    "a big one": ("return {'a': 'x' * (70 << 20)}", "evil.prepare (", "characters of it: keep at most"),
    "a long number": ("return {'a': 10 ** 5000}", "evil.prepare (", "an integer of 16,610 bits at /a"),
}


@pytest.mark.parametrize("case", HOOKS)
def test_a_wrong_value_of_a_hook_fails_the_turn_and_damages_no_journal(case: str, base: Path, evil: Take) -> None:
    body, place, message = HOOKS[case]
    turn = evil(body, hook={"another name": "interceptor"}.get(case, case if " " not in case else "prepare"))
    assert place in turn.reason
    assert message in turn.reason
    assert verify_org(base).errors == []


def test_a_fact_of_a_capability_that_ships_is_not_for_a_plugin(evil: Take) -> None:
    turn = evil("return None", members="facts = ('trust',)\n", trust={})
    assert "evil.intercept (" in turn.reason
    assert "must not write the fact 'trust', which trust writes" in turn.reason


BLAMED = {
    "its own line": ("CallTool", "turn.live"),
    "what it calls": ("BuildPrompt", "effect.change(tim=[])"),
    "a strategy is around it": ("CheckEntries", "raise ValueError('boom')"),
    "the end of the process": ("CallTool", "raise SystemExit(3)"),
    "no end": ("WriteEntry", "turn.write_entry(NewEntry('message', {'text': 'x'}, []), effect.at)"),
    "StopIteration": ("WriteEntry", "next(iter(()))"),
    "some results only": ("CheckResult", "if effect.result.effects:\n    raise ValueError('boom')"),
}


@pytest.mark.parametrize("case", BLAMED)
def test_an_error_is_of_the_capability_whose_code_led_to_it(case: str, evil: Take) -> None:
    handles, body = BLAMED[case]
    turn = evil(body, handles)
    assert turn.status == "failed"
    assert "in the capability evil, evil_" in turn.reason
    assert "fix the capability, or remove its block" in turn.reason


def test_an_error_inside_a_turn_is_not_of_the_capability_around_it(monkeypatch: pytest.MonkeyPatch, evil: Take) -> None:
    def fail(*_: object) -> None:
        raise ValueError("boom")

    monkeypatch.setattr(JournaledAnswers, "ask", fail)
    turn = evil("return run()", hook="wrap_turn")
    assert turn.status == "failed"
    assert "boom" in turn.reason
    assert "evil" not in turn.reason


DESCRIBES = """
describes = ({kind},)

def describe(self, query):
    {body}
"""
IN_TICKS = ["SharedResource", "ClockSchedule", "ReadPath", "OptionalReadPath", "ExpiredMemory"]


@pytest.mark.parametrize("body", ["raise ValueError('boom')", "yield 5"])
@pytest.mark.parametrize("kind", IN_TICKS)
def test_a_description_that_fails_names_the_capability(kind: str, body: str, base: Path, evil: Take) -> None:
    code = DESCRIBES.format(kind=kind, body=body)
    problem = "ValueError: boom, at " if "boom" in body else f"TypeError: describe must yield {kind}, got int"
    try:
        told = evil("return None", members=code).reason  # of clock schedules: the others take their turns
    except ConfigError as error:
        told = str(error)
    assert f'capability "evil" failed: {problem}' in told


def test_a_check_that_cannot_be_loaded_is_a_problem(base: Path, evil: Take) -> None:
    evil("return None", members="provides = {'checks': {'agent': 'nowhere:find'}}\n")
    (problem,) = validate_agents(base, load_config(base))
    assert "its check of agents cannot be loaded: ModuleNotFoundError: No module named 'nowhere'" in problem.message


NOBODY = {"['nobody']": "nobody is no person here; persons are ann, bob, cid", "[]": "no person is named"}


@pytest.mark.parametrize("persons", NOBODY)
@pytest.mark.parametrize("handles", ["WriteEntry", "CallTool"])
def test_a_question_that_reaches_nobody_says_whom_it_names_and_why_it_asks(
    handles: str, persons: str, base: Path, evil: Take
) -> None:
    body = f"yield AskPerson(subject=effect, reason='it is loud', persons={persons})\nreturn (yield effect)"
    evil(ONLY[handles] + body, handles)
    told = str((journal_lines(base, 1), read_state(base, "ada").results))
    assert f"REFUSED: it needs approval (evil), because it is loud, and {NOBODY[persons]}" in told


NAMED = """
def find(subject):
    names = [name for name in ("ann", "ada", "nobody") if subject.names.is_person(name)]
    yield Problem(f"persons: {names}")

provides = {"checks": {"organisation": find}}
"""


def test_a_name_without_an_agent_is_no_person_to_a_check(base: Path, evil: Take) -> None:
    evil("return None", members=NAMED)
    config = load_config(base)
    (problem,) = find_capability_problems("evil", CheckSubject(org=Organisation.from_path(base), config=config))
    assert problem.message == "persons: ['ann']"


AFTER_SENDING = {
    "raise ValueError('late')": "ValueError: late",
    "return Rejected('no')": "before it is sent",
    "return (yield effect)": "must yield SendRequest once: it is performed already",
}


@pytest.mark.parametrize("then", AFTER_SENDING)
def test_a_reply_is_paid_although_a_capability_breaks_on_it(then: str, base: Path, evil: Take) -> None:
    turn = evil(f"yield effect\n{then}", "SendRequest")
    assert turn.status == "failed"
    assert AFTER_SENDING[then] in turn.reason
    assert (turn.calls, turn.credits, read_state(base, "ada").credits) == (1, 1.0, 1.0)
    replies = [line for line in journal_lines(base, 1) if line["type"] == "model_replied" and line["agent"] == "ada"]
    assert [line["text"] for line in replies] == [""], "nobody knows what was to become of it"
    assert verify_org(base).errors == []


def test_a_replay_that_differs_names_the_capability_that_took_part(base: Path, evil: Take) -> None:
    count = base.parent / "count"
    body = f"""
    with open({str(count)!r}, "a") as file:
        file.write("x")
        return Rejected(f"number {{file.tell()}}")
    """
    evil(body)
    with pytest.raises(ReplayMismatch) as caught:
        [*replay_ticks(base, [1])]
    assert caught.value.hint.startswith("evil took part: its hooks in a turn must read no file and no clock")
