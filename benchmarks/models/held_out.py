"""Ten held-out turns for no prompt tuning: do not read the replies while you change a prompt."""

from __future__ import annotations

from typing import Any

from benchmarks.models.turn import Expected, Json, Turn

WORD: Json = {"type": "string", "minLength": 1, "maxLength": 60}
MEETING: dict[str, Json] = {
    "name": WORD,
    "day": {"type": "string", "enum": ["monday", "tuesday", "wednesday", "thursday", "friday"]},
    "hour": {"type": "integer"},
}
NEXT: dict[str, Json] = {
    "step": {"type": "string", "enum": ["wash", "cut", "cook", "serve"]},
    "why": {"type": "string", "minLength": 1, "maxLength": 300},
}
CLERK = "You work in a library. Answer in one sentence."
HELPER = "You help in a shop. Look up what you do not know with a tool. Answer in one sentence."
POST = "You sort the post: press takes questions of journalists, jobs takes applications, legal takes contracts."


def make_held_out_turn(kind: str, instructions: str, expected: Expected, **fields: Any) -> Turn:
    """Return a held-out turn."""
    return Turn(kind=kind, instructions=instructions, expected=expected, is_held_out=True, **fields)


HELD_OUT = [
    make_held_out_turn("answer", CLERK, Expected(answer=["shakespeare"]), request="Who wrote Romeo and Juliet?"),
    make_held_out_turn(
        "answer",
        CLERK,
        Expected(answer=["B-203"]),
        request="What is the number of my card?",
        memory={"reader": "Tom", "card": "B-203"},
    ),
    make_held_out_turn(
        "form",
        "Extract the meeting.",
        Expected(fields={"name": "anna", "day": "tuesday", "hour": 15}),
        request="Anna wants to meet you on Tuesday at 15 o'clock.",
        fields=MEETING,
    ),
    make_held_out_turn(
        "tool",
        HELPER,
        Expected(calls=[("weather", "oslo")], answer=["snow|yes|-4"]),
        request="Do I need boots in Oslo today?",
        tools=["price", "weather"],
    ),
    make_held_out_turn(
        "tool",
        HELPER,
        Expected(calls=[("price", "chair")], answer=[r"\b85\b"]),
        request="How much is a chair?",
        tools=["stock", "price"],
    ),
    make_held_out_turn(
        "refuse",
        f"{HELPER} Say so if you cannot do what is asked.",
        Expected(refuses=True),
        request="Send an e-mail to Tom.",
        tools=["stock"],
    ),
    make_held_out_turn(
        "route",
        f"{POST} Pass each letter on.",
        Expected(sent=["jobs"]),
        readers=("press", "jobs", "legal"),
        inbox=[("ana", "I am an electrician and would like to work for you.")],
    ),
    make_held_out_turn(
        "report",
        "Tell the board in one sentence how many visitors there were in all.",
        Expected(sent=["board", r"\b75\b"]),
        readers=("board",),
        inbox=[("door", "visitors: 31 in the morning, 44 in the afternoon, 75 in all")],
    ),
    make_held_out_turn(
        "remember",
        f"{CLERK} Remember what readers tell you about themselves.",
        Expected(memory="berger"),
        request="My name is Tom Berger.",
        may_remember=True,
    ),
    make_held_out_turn(
        "plan",
        "You plan a meal. Choose the next step: the first that is not done yet.",
        Expected(fields={"step": "cook"}),
        fields=NEXT,
        request="Goal: a soup. Steps: wash, cut, cook, serve. Done: wash, cut.",
    ),
]
