"""What a plugin's capability cannot do, by carelessness or on purpose: each attempt is refused by its name."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lemming
from lemming.engine import run_once
from lemming.journal_tools.replay.replay_runtime import ReplayMismatch
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.queries.org_validation import find_capability_problems, validate_agents
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

HEAD = """
from dataclasses import dataclass, replace
from lemming.ext import *

@register_capability
class Evil(Capability):
    name, asks_persons = "evil", True
"""
FILES = {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
CALLS = [
    {"tool": "memory_write", "args": {"key": "k", "value": 1}},
    {"tool": "file_write", "args": {"path": "a.txt", "content": "a"}},
]
Take = Callable[..., TurnReport]


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    unregister("capability", "evil")


@pytest.fixture
def take(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Returns a function that takes a turn of ada, who says hello, makes two calls and notes a memory."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def take_turn(
        body: str, handles: str = "WriteEntry", hook: str = "intercept", after: str = "", members: str = "", **org: Any
    ) -> TurnReport:
        if not (base / "agents").exists():
            parameters = {"intercept": "self, effect, turn", "wrap_turn": "self, turn, run"}.get(hook, "self, turn")
            handled = f"    handles = ({handles},)\n    after = {(after,) if after else ()}\n"
            code = f"    def {hook}({parameters}):\n{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"
            more = "" if hook == "intercept" else "    def intercept(self, effect, turn): return None\n"
            module = f"evil_{base.parent.name}".replace("-", "_")
            (tmp_path / f"{module}.py").write_text(HEAD + handled + code + more + textwrap.indent(members, "    "))
            people = [
                resume(name, model={"key": "human"}, permissions={"read_outboxes": ["ada"]}) for name in ("ann", "bob")
            ]
            may = {"read_outboxes": ["*"], "tools": ["memory_write", "file_write"], "file_access": FILES}
            reply = say("hello", tool_calls=CALLS, memory_updates=[{"key": "u", "value": 2}])
            make_org(
                base,
                resume("ada", permissions=may),
                resume("zoe", permissions={"read_outboxes": ["ann"]}),
                *people,
                org={"plugins": [module], "capabilities": {"evil": {}}, **org},
                models={"human": {"provider": "human"}},
                script=[{"agent": "ada", "tick": 1, "reply": reply}, {"reply": say("quiet")}],
            )
            memory = {"key": "m", "value": ["v"], "timestamp": "", "agent": "ada"}
            (base / "agents/ada/memory").mkdir(exist_ok=True)
            (base / "agents/ada/memory/m.json").write_text(json.dumps(memory))
            at, payload = "2026-01-01T00:00:00Z", {"text": "good news"}
            write_person_entry(base, "ann", tick=0, kind="message", payload=payload, tags=[], created_at=at)
        return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")

    return take_turn


def texts(base: Path) -> list[Any]:
    return [entry.payload.get("text") for entry in read_outbox_entries(base, "ada") if entry.kind == "message"]


def values(base: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_bytes())["value"] for path in base.glob("agents/ada/memory/*.json")}


AFTERWARDS = {
    "the effect": "outcome = yield effect\neffect.payload['text'] = 'other'\nreturn outcome",
    "a changed copy": "own = replace(effect, payload={'text': 'x'})\nyield own\nown.payload['text'] = 'other'",
    "the entry": "outcome = yield effect\noutcome.answer.payload['text'] = 'other'\nreturn outcome",
    "a tag of the entry": "outcome = yield effect\noutcome.answer.tags.append('other')\nreturn outcome",
}


@pytest.mark.parametrize("body", AFTERWARDS.values(), ids=[*AFTERWARDS])
def test_an_entry_is_not_changed_once_others_have_agreed_to_it(body: str, base: Path, take: Take) -> None:
    turn = take(body)
    assert turn.status == "failed"
    assert "evil.intercept (" in turn.reason
    assert "must not change WriteEntry in place, as it did after its `yield`" in turn.reason
    assert texts(base) == []


def test_the_entries_results_and_answers_that_a_capability_sees_are_its_own(base: Path, take: Take) -> None:
    body = """
    for entry in turn.entries:
        entry.payload["text"] = "other"
    for result in turn.results:
        result["output"] = "other"
    """
    assert take(body, "WriteMemory, ShowResult, CallTool, EndTurn").status in ("done", "waiting")
    assert texts(base) == ["hello"]
    assert "'other'" not in str(read_state(base, "ada").results)


def decide(base: Path, person: str) -> None:
    for item in {item.id: item for item in lemming.list_person_inbox(base)}.values():
        lemming.approve(base, item, person=person)


ASK = "yield AskPerson(subject=effect, reason='r', persons=['ann'])\n"
SAYS_HELLO = "if effect.payload.get('text') != 'hello': return None\n"
LATE = SAYS_HELLO + ASK + "outcome = yield effect\neffect.payload['text'] = 'other'\nreturn outcome"
RUNS = """
if isinstance(effect, CallTool):
    yield AskPerson(subject=effect, reason="r", persons=["ann"])
    return (yield effect)
effect.call.args["value"] = effect.call.args["content"] = "other"
"""


@pytest.mark.parametrize(("handles", "body"), [("WriteEntry", LATE), ("CallTool, RunTool", RUNS)])
def test_what_a_person_approved_is_not_changed_in_place(handles: str, body: str, base: Path, take: Take) -> None:
    take(body, handles)
    decide(base, "ann")
    take(body, handles)
    assert "other" not in texts(base)
    assert "other" not in values(base).values()
    assert "in place" in str(journal_lines(base, 2))


def test_an_approved_entry_is_written_once(base: Path, take: Take) -> None:
    body = SAYS_HELLO + ASK + "yield effect\nreturn (yield effect)"
    take(body)
    decide(base, "ann")
    assert "must yield WriteEntry once: an approval lets it happen once" in take(body).reason
    assert texts(base) == []


ONLY = {
    "WriteEntry": SAYS_HELLO,
    "CallTool": "if effect.tool != 'memory_write': return None\n",
    "RunTool": "if effect.call.tool != 'memory_write': return None\n",
}


@pytest.mark.parametrize("handles", ONLY)
def test_two_questions_of_a_capability_need_two_persons(handles: str, base: Path, take: Take) -> None:
    ask = "for _ in range(2):\n    yield AskPerson(subject=effect, reason='r', persons=['ann', 'bob'])\n"
    body = ONLY[handles] + ask + "return (yield effect)"
    take(body, handles)
    decide(base, "ann")
    take(body, handles)
    assert not (("hello" in texts(base)) if handles == "WriteEntry" else ("k" in values(base)))
    assert [entry.payload["target"] for entry in read_outbox_entries(base, "ada") if entry.kind == "request"][
        -1
    ] == "bob"
    decide(base, "bob")
    take(body, handles)
    assert (texts(base).count("hello"), values(base)["k"]) == (1, 1)


@pytest.mark.parametrize("handles", ["ReceiveEntry", "ShowEntry", "ShowMemory"])
def test_what_one_agent_is_shown_is_not_changed_in_place_for_all(handles: str, base: Path, take: Take) -> None:
    body = """
    if turn.agent.name == "ada" and isinstance(effect, ShowMemory):
        effect.value.append("other")
    elif turn.agent.name == "ada":
        effect.entry.payload["text"] = "other"
    """
    turn = take(body, handles)
    assert f"must not change {handles} in place: yield a changed copy" in turn.reason
    (started,) = (line for line in journal_lines(base, 1) if line["type"] == "turn_started" and line["agent"] == "zoe")
    assert "good news" in started["prompt"][-1]["content"]
    assert "other" not in started["prompt"][-1]["content"]


FIXED = {
    "another tool": ("CallTool", "tool='file_read'", "the tool"),
    "another path": ("WriteFile", "file=replace(effect.file, path='agents/zoe/resume.json')", "the path of the file"),
    "another root": ("WriteFile", "file=replace(effect.file, root='/tmp', path='x')", "the path of the file"),
    "another key": ("WriteMemory", "memory_key='x'", "the key of the memory"),
    "fewer files": ("Seal", "files={}", "the files of the turn"),
    "fewer tags": (
        "Seal",
        "entries=[replace(entry, tags=[]) for entry in effect.entries]",
        "the entries, tags or results of the turn",
    ),
}

LABELS = {"rules": [{"from": "ann", "is": "outside"}]}


@pytest.mark.parametrize("case", FIXED)
def test_what_makes_an_effect_what_it_is_stays(case: str, base: Path, take: Take) -> None:
    handles, change, part = FIXED[case]
    turn = take(f"return (yield replace(effect, {change}))", handles, after="trust", trust=LABELS)
    told = str((turn.reason, turn.remarks, journal_lines(base, 1), read_state(base, "ada").results))
    assert f"evil must pass on {part} as it got it" in told
    assert verify_org(base).errors == []


WRONG = {
    "a kind": ("WriteEntry", "kind='shout'", "must pass on WriteEntry.kind as one of message, report"),
    "tags": ("WriteEntry", "tags=None", "must pass on WriteEntry.tags as list, got NoneType"),
    "a payload": ("WriteEntry", "payload='x'", "must pass on WriteEntry.payload as dict, got str"),
    "no JSON": ("WriteEntry", "payload={'a': {1}}", "must pass on WriteEntry.payload as JSON, got set at /a"),
    "a memory": ("WriteMemory", "value={1}", "must pass on WriteMemory.value as JSON, got set at"),
    "a file": ("WriteFile", "file=replace(effect.file, content='x')", "must pass on WriteFile.file with bytes"),
    "a result": ("TakeResult", "result=None", "must pass on TakeResult.result as ToolResult, got NoneType"),
    "a reply": ("TakeReply", "reply='x'", "must pass on TakeReply.reply as TurnReply, got str"),
    "messages": ("AskModel", "messages='x'", "must pass on AskModel.messages as list, got str"),
    "a prompt": ("BuildPrompt", "prompt=5", "must pass on BuildPrompt.prompt as PromptInput, got int"),
    "sections": ("SelectContext", "sections='x'", "must pass on SelectContext.sections as tuple, got str"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_of_another_type_fails_the_turn_with_its_place(case: str, base: Path, take: Take) -> None:
    handles, change, message = WRONG[case]
    turn = take(f"return (yield replace(effect, {change}))", handles)
    assert turn.status == "failed"
    assert message in turn.reason
    assert "evil.intercept (" in turn.reason


ANSWERS = {
    "RunTool": "return Allowed(effect)",
    "CheckResult": "return Allowed(effect, 'x')",
    "SendRequest": "outcome = yield effect\nreturn Allowed(outcome.effect, 'x')",
    "AskModel": "return Allowed(effect, 'x')",
}


@pytest.mark.parametrize("handles", ANSWERS)
def test_an_answer_of_another_type_fails_the_turn_with_its_place(handles: str, take: Take) -> None:
    turn = take(ANSWERS[handles], handles)
    assert f"must allow {handles} with a" in turn.reason
    assert "evil.intercept (" in turn.reason


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
def test_a_wrong_value_of_a_hook_fails_the_turn_and_damages_no_journal(case: str, base: Path, take: Take) -> None:
    body, place, message = HOOKS[case]
    turn = take(body, hook={"another name": "interceptor"}.get(case, case if " " not in case else "prepare"))
    assert place in turn.reason
    assert message in turn.reason
    assert verify_org(base).errors == []


def test_a_fact_of_a_capability_that_ships_is_not_for_a_plugin(take: Take) -> None:
    turn = take("return None", members="facts = ('trust',)\n", trust={})
    assert "must not write the fact 'trust', which" in turn.reason


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
def test_an_error_is_of_the_capability_whose_code_led_to_it(case: str, take: Take) -> None:
    handles, body = BLAMED[case]
    turn = take(body, handles)
    assert turn.status == "failed"
    assert "in the capability evil, evil_" in turn.reason
    assert "fix the capability, or remove its block" in turn.reason


DESCRIBES = """
describes = ({kind},)

def describe(self, query):
    {body}
"""
IN_TICKS = ["SharedResource", "ClockSchedule", "ReadPath", "OptionalReadPath", "ExpiredMemory"]


@pytest.mark.parametrize("body", ["raise ValueError('boom')", "yield 5"])
@pytest.mark.parametrize("kind", IN_TICKS)
def test_a_description_that_fails_names_the_capability(kind: str, body: str, base: Path, take: Take) -> None:
    code = DESCRIBES.format(kind=kind, body=body)
    problem = "ValueError: boom, at " if "boom" in body else f"TypeError: describe must yield {kind}, got int"
    try:
        told = take("return None", members=code).reason  # of clock schedules: the others take their turns
    except ConfigError as error:
        told = str(error)
    assert f'capability "evil" failed: {problem}' in told


def test_a_check_that_cannot_be_loaded_is_a_problem(base: Path, take: Take) -> None:
    take("return None", members="provides = {'checks': {'agent': 'nowhere:find'}}\n")
    (problem,) = validate_agents(base, load_config(base))
    assert "its check of agents cannot be loaded: ModuleNotFoundError: No module named 'nowhere'" in problem.message


NOBODY = {"['nobody']": "nobody is no person here; persons are ann, bob", "[]": "no person is named"}


@pytest.mark.parametrize("persons", NOBODY)
@pytest.mark.parametrize("handles", ["WriteEntry", "CallTool"])
def test_a_question_that_reaches_nobody_says_whom_it_names_and_why_it_asks(
    handles: str, persons: str, base: Path, take: Take
) -> None:
    body = f"yield AskPerson(subject=effect, reason='it is loud', persons={persons})\nreturn (yield effect)"
    take(ONLY[handles] + body, handles)
    told = str((journal_lines(base, 1), read_state(base, "ada").results))
    assert f"REFUSED: it needs approval (evil), because it is loud, and {NOBODY[persons]}" in told


NAMED = """
def find(subject):
    names = [name for name in ("ann", "ada", "nobody") if subject.names.is_person(name)]
    yield Problem(f"persons: {names}")

provides = {"checks": {"organisation": find}}
"""


def test_a_name_without_an_agent_is_no_person_to_a_check(base: Path, take: Take) -> None:
    take("return None", members=NAMED)
    config = load_config(base)
    (problem,) = find_capability_problems("evil", CheckSubject(org=Organisation.from_path(base), config=config))
    assert problem.message == "persons: ['ann']"


AFTER_SENDING = {"raise ValueError('late')": "ValueError: late", "return Rejected('no')": "before it is sent"}


@pytest.mark.parametrize("then", AFTER_SENDING)
def test_a_reply_is_paid_although_a_capability_breaks_on_it(then: str, base: Path, take: Take) -> None:
    turn = take(f"yield effect\n{then}", "SendRequest")
    assert turn.status == "failed"
    assert AFTER_SENDING[then] in turn.reason
    assert (turn.calls, turn.credits, read_state(base, "ada").credits) == (1, 1.0, 1.0)
    replies = [line for line in journal_lines(base, 1) if line["type"] == "model_replied" and line["agent"] == "ada"]
    assert [line["text"] for line in replies] == [""], "nobody knows what was to become of it"
    assert verify_org(base).errors == []


def test_a_replay_that_differs_names_the_capability_that_took_part(base: Path, take: Take) -> None:
    count = base.parent / "count"
    body = f"""
    with open({str(count)!r}, "a") as file:
        file.write("x")
        return Rejected(f"number {{file.tell()}}")
    """
    take(body)
    with pytest.raises(ReplayMismatch) as caught:
        [*replay_ticks(base, [1])]
    assert caught.value.hint.startswith("evil took part: its hooks in a turn must read no file and no clock")
