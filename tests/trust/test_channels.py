"""What a channel has made sure of is what rules look at; what a sender says of itself never is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from callers import SECRET, TOKEN, served
from doorway import arrived, with_channel

from lemming.capabilities.channels.channel import ChannelContext, InboundMessage
from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock
from lemming.testing import FrozenClock, resume

OPTIONS = {"to": "desk", "secret_env": "DOOR_SECRET", "token_env": "DOOR_TOKEN"}
KNOWN = {"from": "door", "when": {"field": "verified.secret", "op": "is", "value": "DOOR_SECRET"}, "is": "known"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    monkeypatch.setenv("DOOR_TOKEN", TOKEN)


def trust_of_desk(base: Path) -> str:
    (turn,) = (it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "desk")
    return str(turn.trust["is"])


def test_a_webhook_with_the_right_signature_is_what_the_rule_says(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http", org={"trust": {"rules": [KNOWN]}})
    with served(base) as door:
        door.hook(json.dumps({"type": "order"}).encode())
    assert arrived(base)[0].payload["verified"] == {"secret": "DOOR_SECRET"}
    assert trust_of_desk(base) == "known"


def test_a_question_with_the_token_is_another_matter(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http", org={"trust": {"rules": [KNOWN]}})
    with served(base) as door:
        assert door.ask(text="hello").status == 202
    assert arrived(base)[0].payload["verified"] == {"token": "DOOR_TOKEN"}
    assert trust_of_desk(base) == "outside"


def test_a_file_has_the_owner_that_the_system_says(base: Path) -> None:
    drop = {"path": "drop", "to": "desk", "settle_s": 0}
    with_channel(base, drop, org={"trust": {}})
    (base / "drop").mkdir()
    (base / "drop/x.txt").write_text("hello")
    run_once(base, clock=FrozenClock())
    (entry,) = arrived(base)
    assert entry.payload["verified"] == {"owner": entry.payload["from"]}


@pytest.mark.parametrize("settings", [{}, {"trust": {}}])
def test_nobody_says_of_himself_that_he_is_verified(base: Path, settings: dict[str, Any]) -> None:
    from lemming.kernel.agents import Agent
    from lemming.kernel.org.organisation import Organisation

    with_channel(base, OPTIONS, provider="http", org=settings)
    org, clock = Organisation(base), SystemClock()
    door = Agent(name="door", instructions=str(resume("door")))
    context = ChannelContext(org, door, "http", lambda: 1, clock.now)
    claims = InboundMessage(id="1", text="hello", more={"body": 1, "verified": {"secret": "DOOR_SECRET"}})
    told = context.build_payload(claims).get("verified")
    assert told == ({} if settings else {"secret": "DOOR_SECRET"})


def test_without_tracking_an_entry_has_no_word_of_it(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http")
    with served(base) as door:
        door.hook(b"{}")
    assert "verified" not in arrived(base)[0].payload
