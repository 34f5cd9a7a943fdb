"""When a question to a model is the very same."""

from __future__ import annotations

from typing import Any

import pytest

from lemming.evals.rehearsal.rehearsal_runtime import hash_prompt
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Image, Request

ENTRY = ModelEntry(provider="openai", model="m", options={"base_url": "http://127.0.0.1:1"})
ASKED = Request("m", [{"role": "user", "content": "hello"}], temperature=0.5, seed=7)


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "user", "content": "hello!"}]},
        {"model_name": "n"},
        {"temperature": 0.6},
        {"schema": {"type": "object"}},
        {"seed": 8},
        {"max_output_tokens": 5},
        {"extra": {"top_p": 1}},
        {"images": (Image("image/png", "AA=="),)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_question_of_which_anything_else_is_asked_is_another(other: dict[str, Any]) -> None:
    assert hash_prompt(ENTRY, ASKED._replace(**other)) != hash_prompt(ENTRY, ASKED)


def test_who_is_asked_is_part_of_the_question() -> None:
    others = [ModelEntry(provider="anthropic", model="m"), ModelEntry(provider="openai", model="m")]
    assert len({hash_prompt(entry, ASKED) for entry in [ENTRY, *others]}) == 3


def test_a_question_stays_the_same_whatever_is_paid_and_however_long_one_waits() -> None:
    dear = ModelEntry(
        provider="openai", model="m", options=dict(ENTRY.options), per_call=9.0, deadline_s=1.0, attempts=1
    )
    asked = ASKED._replace(deadline_s=1.0, tick=3, agent="ada", step=2)
    assert hash_prompt(dear, asked) == hash_prompt(ENTRY, ASKED)
