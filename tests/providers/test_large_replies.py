"""A reply that is far too large is refused, and costs no more than one that is a little too large."""

from __future__ import annotations

import json

import pytest

from lemming.kernel.base.contract import REPLY_LIMIT_BYTES, parse_reply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.llm.model_call import validate_reply
from lemming.kernel.providers import Reply
from lemming.testing import say

SECRET = "hunter2-hunter2-hunter2"


def test_of_a_reply_that_is_too_large_the_beginning_is_kept_and_it_is_refused_still() -> None:
    text = json.dumps(say("\u00e9\u200b" * 400_000))
    kept = validate_reply(Reply(text)).text
    assert len(text) > 4 * REPLY_LIMIT_BYTES
    assert len(kept) <= 2 * REPLY_LIMIT_BYTES
    with pytest.raises(ContractError, match="larger than"):
        parse_reply(kept, kinds=["message"])


@pytest.mark.parametrize("at", [0, REPLY_LIMIT_BYTES // 2, REPLY_LIMIT_BYTES - 10, 2 * REPLY_LIMIT_BYTES - 10])
def test_no_secret_is_kept_of_it_not_even_half_of_one(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    text = f"{'x ' * (at // 2)}{SECRET}{' x' * REPLY_LIMIT_BYTES}"
    kept = validate_reply(Reply(text)).text
    assert "hunter2" not in kept
    assert len(kept) > REPLY_LIMIT_BYTES


def test_one_that_is_just_not_too_large_is_whole() -> None:
    text = "x" * REPLY_LIMIT_BYTES
    assert validate_reply(Reply(text)).text == text
