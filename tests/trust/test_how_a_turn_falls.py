"""What is noted of why a turn is trusted less, as it is given one thing after another."""

from __future__ import annotations

from lemming.capabilities.trust.turn_trust import MAX_SOURCES, TurnLabelState

ORDER = ["outside", "partner", "agent", "owner"]


def turn(word: str = "agent") -> TurnLabelState:
    return TurnLabelState({"is": word, "order": ORDER}, "ada", 1)


def names(trust: TurnLabelState) -> list[str]:
    return [of for _, of in trust.sources]


def test_what_is_trusted_as_far_as_an_agent_needs_no_name() -> None:
    trust = turn("owner")
    trust.lower_label("agent", "a colleague")
    assert trust.label == "agent"
    assert names(trust) == []


def test_all_that_made_it_what_it_is_is_named() -> None:
    trust = turn()
    trust.lower_label("outside", "a letter")
    trust.lower_label("outside", "a page")
    assert names(trust) == ["a letter", "a page"]


def test_what_is_trusted_further_than_it_is_not_named() -> None:
    trust = turn()
    trust.lower_label("outside", "a letter")
    trust.lower_label("partner", "a partner")
    trust.lower_label("agent", "a colleague")
    assert trust.label == "outside"
    assert names(trust) == ["a letter"]


def test_what_made_it_less_trusted_before_is_named_no_more_once_it_falls_lower() -> None:
    trust = turn()
    trust.lower_label("partner", "a partner")
    trust.lower_label("outside", "a letter")
    assert trust.label == "outside"
    assert names(trust) == ["a letter"]


def test_no_more_are_named_than_fit() -> None:
    trust = turn()
    for number in range(MAX_SOURCES + 1):
        trust.lower_label("outside", f"letter {number}")
    assert names(trust) == [f"letter {number}" for number in range(MAX_SOURCES)]
