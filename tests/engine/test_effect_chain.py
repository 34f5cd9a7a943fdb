"""The rules of a chain of effects, one by one, with interceptors of a few lines and nothing of an organisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lemming.ext import (
    Allowed,
    AskPerson,
    CallTool,
    Deferred,
    Effect,
    EffectFinished,
    EffectPerformed,
    EffectStarted,
    Event,
    Outcome,
    Rejected,
    Replaced,
    Suspended,
    WriteEntry,
    WriteFile,
    WriteMemory,
    WriteNotes,
    effect_content,
)
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.turn.effect_chain import EffectChain, Interceptor
from lemming.kernel.turn.live_phase import LIVE_EFFECTS
from lemming.kernel.turn.turn_effects import UNCOMPARED, WRITES, LiveEffect

MEMORY = WriteMemory(memory_key="k", value="v")
CALL = CallTool(tool="bell", args={"n": 1})
ENTRY = WriteEntry(kind="message", payload={"text": "t"}, tags=[])


class World:
    """A world that performs effects and takes notes."""

    def __init__(self, *links: Interceptor, answers: Callable[[Any], Any] = lambda effect: "done") -> None:
        self.performed: list[Effect] = []
        self.events: list[Event] = []
        self._answers = answers
        self.chain = EffectChain(links, self._perform, self.events.append)

    def _perform(self, effect: Effect) -> Any:
        self.performed.append(effect)
        return self._answers(effect)


def link(name: str, intercept: Any, *handles: type[Effect], facts: Sequence[str] = ()) -> Interceptor:
    return Interceptor(name, handles or (WriteMemory, CallTool), facts, intercept)


def change(**values: Any) -> Callable[[Any], Any]:
    def intercept(effect: Any) -> Iterator[Any]:
        return (yield replace(effect, **values))

    return intercept


def with_fact(name: str, value: Any) -> Callable[[Any], Any]:
    def intercept(effect: Any) -> Iterator[Any]:
        return (yield replace(effect, facts={**effect.facts, name: value}))

    return intercept


def test_interceptors_go_in_order_down_and_back_and_the_world_is_in_the_middle() -> None:
    steps: list[str] = []

    def around(name: str) -> Callable[[Any], Any]:
        def intercept(effect: Any) -> Iterator[Any]:
            steps.append(f"{name} before")
            outcome = yield effect
            steps.append(f"{name} after")
            return outcome

        return intercept

    def perform(effect: Effect) -> str:
        steps.append("world")
        return "done"

    world = World(link("a", around("a")), link("b", around("b")), answers=perform)
    assert world.chain.dispatch(MEMORY) == Allowed(MEMORY, "done")
    assert steps == ["a before", "b before", "world", "b after", "a after"]


def test_a_type_without_interceptors_is_performed_as_it_is() -> None:
    world = World(link("a", lambda effect: Rejected("no"), CallTool))
    assert CallTool in world.chain.handled
    assert WriteMemory not in world.chain.handled
    assert world.chain.dispatch(MEMORY) == Allowed(MEMORY, "done")


def test_an_interceptor_that_takes_no_part_lets_the_effect_pass() -> None:
    def undecided(effect: Any) -> Iterator[Any]:
        return
        yield

    world = World(link("a", lambda effect: None), link("b", undecided))
    assert world.chain.dispatch(MEMORY) == Allowed(MEMORY, "done")
    assert world.performed == [MEMORY]


def test_what_the_first_rejects_no_later_one_sees() -> None:
    asked: list[Effect] = []
    world = World(link("a", lambda effect: Rejected("no")), link("b", asked.append))
    assert world.chain.dispatch(MEMORY) == Rejected("no")
    assert (asked, world.performed) == ([], [])


def test_a_later_interceptor_sees_what_an_earlier_one_made_of_the_effect() -> None:
    asked: list[Any] = []
    world = World(link("a", change(value="w")), link("b", asked.append))
    assert world.chain.dispatch(MEMORY) == Replaced(replace(MEMORY, value="w"), "done")
    assert [effect.value for effect in (*asked, *world.performed)] == ["w", "w"]


@pytest.mark.parametrize("decision", [Rejected("no"), Rejected("no", is_final=True), Deferred("later")])
def test_a_generator_sees_the_outcome_of_the_rest_of_the_chain(decision: Outcome) -> None:
    seen: list[Outcome] = []

    def watch(effect: Any) -> Iterator[Any]:
        seen.append((yield effect))

    world = World(link("a", watch), link("b", lambda effect: decision))
    assert world.chain.dispatch(MEMORY) is decision
    assert seen == [decision]
    assert world.performed == []


def test_a_refusal_of_the_world_is_the_outcome() -> None:
    world = World(link("a", lambda effect: (yield effect)), answers=lambda effect: Deferred("full"))
    assert world.chain.dispatch(CALL) == Deferred("full")
    assert [type(event) for event in world.events] == [EffectStarted, EffectFinished]


def test_an_interceptor_may_answer_a_call_without_making_it() -> None:
    world = World(link("a", lambda effect: Allowed(effect, "from memory")))
    assert world.chain.dispatch(CALL) == Allowed(CALL, "from memory")
    assert world.performed == []


def test_an_interceptor_may_try_again() -> None:
    answers = iter([Deferred("busy"), "done"])

    def insist(effect: Any) -> Iterator[Any]:
        while isinstance(outcome := (yield effect), Deferred):
            pass
        return outcome

    world = World(link("a", insist), answers=lambda effect: next(answers))
    assert world.chain.dispatch(CALL) == Allowed(CALL, "done")
    assert world.performed == [CALL, CALL]


def test_only_a_changed_content_is_replaced() -> None:
    same = World(link("a", change(value="v", at="2026-01-01T00:00:00Z"))).chain.dispatch(MEMORY)
    assert type(same) is Allowed
    noted = World(link("a", with_fact("trust", "low"), facts=("trust",))).chain.dispatch(MEMORY)
    assert type(noted) is Allowed
    assert type(World(link("a", change(value="w"))).chain.dispatch(MEMORY)) is Replaced


def test_an_interceptor_cannot_say_itself_that_it_replaced_something() -> None:
    outcome = World(link("a", lambda effect: Replaced(effect, "mine"))).chain.dispatch(CALL)
    assert (type(outcome), outcome) == (Allowed, Allowed(CALL, "mine"))


def test_an_interceptor_cannot_suspend_what_it_asked_nobody_about() -> None:
    world = World(link("a", lambda effect: Suspended(AskPerson(subject=effect, reason="loud"))))
    outcome = world.chain.dispatch(CALL)
    assert outcome == Rejected("a suspended what no person was asked about: yield an AskPerson")


def test_an_interceptor_cannot_allow_an_effect_of_another_type() -> None:
    def swap(effect: Any) -> Iterator[Any]:
        return (yield MEMORY)

    outcome = World(link("a", swap, CallTool)).chain.dispatch(CALL)
    assert outcome == Rejected("a allowed another effect: WriteMemory")


@pytest.mark.parametrize(
    "effect",
    [
        ENTRY,
        MEMORY,
        WriteNotes(text="n"),
        WriteFile(file=FileEffect("agents/ada/workspace/a", b"a")),
    ],
    ids=lambda effect: type(effect).__name__,
)
def test_a_write_is_allowed_only_as_the_rest_of_the_chain_has_seen_it(effect: Effect) -> None:
    def swap_effect(effect: Any) -> Iterator[Any]:
        outcome = yield effect
        return Allowed(replace(effect), outcome.answer)

    def swap_answer(effect: Any) -> Iterator[Any]:
        outcome = yield effect
        return Allowed(outcome.effect, "something else")

    def skip(effect: Any) -> Outcome:
        return Allowed(effect, "done")

    for intercept in (swap_effect, swap_answer, skip):
        outcome = World(link("a", intercept, type(effect))).chain.dispatch(effect)
        assert isinstance(outcome, Rejected), intercept.__name__
        assert outcome.reason.startswith("a allowed what later capabilities have not seen: "), intercept.__name__
    assert World(link("a", lambda effect: (yield effect), type(effect))).chain.dispatch(effect) == Allowed(
        effect, "done"
    )


@pytest.mark.parametrize("form", ["function", "generator", "generator that takes no part"])
@pytest.mark.parametrize(
    "change_in_place",
    [
        lambda effect: effect.payload.update(text="other"),
        lambda effect: effect.payload["to"].append("eve"),
        lambda effect: effect.tags.append("x"),
        lambda effect: effect.facts.update(trust="high"),
    ],
    ids=["a value", "a value within", "a tag", "a fact"],
)
def test_an_effect_changed_in_place_is_not_performed(form: str, change_in_place: Any) -> None:
    def generate(effect: Any) -> Iterator[Any]:
        change_in_place(effect)
        return (yield effect) if form == "generator" else None

    world = World(link("a", change_in_place if form == "function" else generate, WriteEntry))
    entry = WriteEntry(kind="message", payload={"text": "t", "to": ["bob"]}, tags=[], facts={"trust": "low"})
    assert world.chain.dispatch(entry) == Rejected("a changed an effect in place: yield a changed copy")
    assert world.performed == []


def test_a_write_is_any_effect_that_leaves_content_behind() -> None:
    kinds = [*Effect.__subclasses__(), *LiveEffect.__subclasses__()]
    assert {kind for kind in kinds if kind.__name__.startswith(("Write", "Seal"))} == {*WRITES}
    assert all(issubclass(kind, LiveEffect) for kind in LIVE_EFFECTS)
    assert not any(issubclass(kind, UNCOMPARED) for kind in WRITES)


def test_a_declared_fact_reaches_later_interceptors_and_the_world() -> None:
    asked: list[Any] = []
    world = World(link("a", with_fact("trust", "low"), facts=("trust",)), link("b", asked.append))
    assert isinstance(world.chain.dispatch(MEMORY), Allowed)
    assert [effect.facts for effect in (*asked, *world.performed)] == [{"trust": "low"}] * 2


@pytest.mark.parametrize(
    "facts", [{"trust": "high"}, {}, {"trust": "low", "cost": 1}], ids=["altered", "lost", "another"]
)
def test_a_fact_may_be_altered_only_by_who_declares_it(facts: dict[str, Any]) -> None:
    closed: list[str] = []

    def forge(effect: Any) -> Iterator[Any]:
        try:
            yield replace(effect, facts=facts)
        finally:
            closed.append("b")

    world = World(link("a", with_fact("trust", "low"), facts=("trust",)), link("b", forge, facts=("other",)))
    outcome = world.chain.dispatch(MEMORY)
    assert isinstance(outcome, Rejected)
    assert outcome.reason.startswith("b altered facts of others: ")
    assert (world.performed, closed) == ([], ["b"])


def test_an_effect_that_an_interceptor_adds_has_no_facts_of_others_either() -> None:
    def forge(effect: Any) -> Iterator[Any]:
        yield replace(MEMORY, facts={"trust": "high"})
        return (yield effect)

    world = World(link("a", forge, CallTool, facts=("mine",)))
    assert world.chain.dispatch(CALL) == Rejected("a altered facts of others: trust; list its own in `facts`")
    assert world.performed == []
    for passed, declared in (({"trust": "high"}, ()), ({}, ("trust",))):  # handed on, or its own
        world = World(link("a", forge, CallTool, facts=declared))
        assert isinstance(world.chain.dispatch(replace(CALL, facts=passed)), Allowed)
        assert [type(effect) for effect in world.performed] == [WriteMemory, CallTool]


def test_another_type_of_effect_starts_at_the_top_of_its_own_chain() -> None:
    seen: list[tuple[str, str]] = []

    def note(name: str) -> Callable[[Any], Any]:
        def intercept(effect: Any) -> Iterator[Any]:
            seen.append((name, type(effect).__name__))
            if name == "last" and isinstance(effect, CallTool):
                assert isinstance((yield MEMORY), Allowed)
            return (yield effect)

        return intercept

    world = World(link("first", note("first")), link("last", note("last")))
    assert world.chain.dispatch(CALL) == Allowed(CALL, "done")
    assert seen == [("first", "CallTool"), ("last", "CallTool"), ("first", "WriteMemory"), ("last", "WriteMemory")]
    assert world.performed == [MEMORY, CALL]


@pytest.mark.parametrize("reply", [Rejected("denied"), Deferred("too many wait"), None], ids=str)
def test_code_after_a_question_runs_only_once_a_person_has_approved(reply: Outcome | None) -> None:
    went_on: list[Outcome] = []

    def ask(effect: Any) -> Iterator[Any]:
        went_on.append((yield AskPerson(subject=effect, reason="loud")))
        return (yield effect)

    question = AskPerson(subject=CALL, reason="loud", asked_by="a")
    answer = Suspended(question) if reply is None else reply
    world = World(link("a", ask, CallTool), answers=lambda effect: answer)
    assert world.chain.dispatch(CALL) is answer
    assert (went_on, world.performed) == ([], [question])
    world = World(link("a", ask, CallTool))
    assert world.chain.dispatch(CALL) == Allowed(CALL, "done")
    assert went_on == [Allowed(question, "done")]
    assert world.performed == [question, CALL]


def test_a_question_passes_the_interceptors_of_questions() -> None:
    def ask(effect: Any) -> Iterator[Any]:
        yield AskPerson(subject=effect, reason="loud")
        return (yield effect)

    world = World(link("a", ask, CallTool), link("b", lambda effect: Deferred("at night"), AskPerson))
    assert world.chain.dispatch(CALL) == Deferred("at night")
    assert world.performed == []


def test_a_question_is_about_the_effect_as_it_was_rewritten() -> None:
    def ask(effect: Any) -> Iterator[Any]:
        yield AskPerson(subject=effect, reason="loud")
        return (yield effect)

    world = World(link("a", change(args={"n": 2}), CallTool), link("b", ask, CallTool))
    assert isinstance(world.chain.dispatch(CALL), Replaced)
    question, call = world.performed
    assert isinstance(question, AskPerson)
    assert effect_content(question.subject) == effect_content(call) != effect_content(CALL)


def test_a_grant_answers_only_the_question_it_was_given_for() -> None:
    question = AskPerson(subject=CALL, reason="loud", asked_by="two of ann", persons=("ann",))
    first = {"gate": "two of ann", "by": "ann"}
    assert question.find_answer(first)
    assert question.find_answer({"gate": "two of bob", "by": "bob", "grants": [first]})
    assert not question.find_answer(None)
    assert not question.find_answer({"gate": "two of ann", "by": "bob"})
    assert not question.find_answer({"gate": "two of bob", "by": "ann"})


def test_events_tell_what_began_what_was_done_and_what_became_of_it() -> None:
    world = World(link("a", change(value="w")))
    outcome = world.chain.dispatch(MEMORY)
    written = replace(MEMORY, value="w")
    assert world.events == [
        EffectStarted(written),
        EffectPerformed(written, "done"),
        EffectFinished(MEMORY, Replaced(written, "done")),
    ]
    assert outcome is world.events[-1].outcome  # type: ignore[union-attr]


def test_an_error_of_an_interceptor_is_no_outcome() -> None:
    def broken(effect: Any) -> Outcome:
        raise KeyError("broken")

    world = World(link("a", lambda effect: (yield effect)), link("b", broken))
    with pytest.raises(KeyError, match="broken"):
        world.chain.dispatch(MEMORY)
    assert (world.performed, world.events) == ([], [])


def test_neighbours_are_decided_in_order_before_any_is_performed() -> None:
    decided: list[Any] = []
    world = World(link("a", lambda effect: decided.append(effect.args["n"]), CallTool))
    calls = [replace(CALL, args={"n": number}) for number in range(3)]
    steps = [world.chain.begin(call) for call in calls]
    assert [next(item) for item in steps] == calls
    assert decided == [0, 1, 2]
    assert not any(isinstance(event, EffectPerformed) for event in world.events)
    for number in (2, 0, 1):  # they end in any order
        with pytest.raises(StopIteration) as stop:
            steps[number].send(f"done {number}")
        assert stop.value.value == Allowed(calls[number], f"done {number}")


def test_facts_times_and_grants_are_no_content() -> None:
    content = effect_content(CALL)
    noted = replace(CALL, facts={"trust": "low"}, at="2026-01-01T00:00:00Z", call_id="x", grant={"id": "g"})
    assert effect_content(noted) == content
    assert effect_content(replace(CALL, args={"n": 2})) != content
    assert effect_content(replace(ENTRY, tags=["a"])) != effect_content(ENTRY)
