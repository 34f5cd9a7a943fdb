"""What goes to a worker and comes back survives the journey; without the extra there is none."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.base import errors
from lemming.kernel.base.errors import ConfigError, DiskError, LemmingError, Problem, ProviderError
from lemming.kernel.providers import Reply, Request
from lemming.testing import make_org, resume

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LemmingError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_arrives_with_its_place_and_hint(kind: type[LemmingError]) -> None:
    sent = kind("it broke", where="here", hint="mend it")
    arrived = pickle.loads(pickle.dumps(sent))
    assert type(arrived) is kind
    assert arrived.as_json() == sent.as_json()
    assert str(arrived) == str(sent)


def test_what_an_error_has_of_its_own_arrives_too() -> None:
    limited = ProviderError("slow down", retry_after_s=2.5)
    limited.is_retryable = True
    arrived = pickle.loads(pickle.dumps(limited))
    assert (arrived.retry_after_s, arrived.is_retryable) == (2.5, True)
    wrong = ConfigError("wrong", problems=(Problem("a", "f", 1, 2), Problem("b")))
    assert pickle.loads(pickle.dumps(wrong)).problems == wrong.problems
    odd = DiskError("odd", concerns_one_file=True)
    assert pickle.loads(pickle.dumps(odd)).concerns_one_file


def test_a_request_and_a_reply_arrive_as_they_were() -> None:
    request = Request(model_name="m", messages=[{"role": "user", "content": "漢"}], schema={"type": "object"})
    reply = Reply(text="\u2028 ok", input_tokens=0, finish="length")
    assert pickle.loads(pickle.dumps((request, reply))) == (request, reply)


def test_where_the_extra_is_missing_the_turn_says_how_to_install_it(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    make_org(base, resume("ada"), org={"executor": "dask", "executor_address": "tcp://127.0.0.1:1"})
    (turn,) = run_once(base).turns
    assert (turn.status, "distributed is not installed" in turn.reason) == ("failed", True)
    assert "lemming-engine[dask]" in turn.reason
