"""`lemming validate` says which agents strangers may have act, and stops when a gate asks or blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume

HOSTS = {"http": {"hosts": ["news.example"]}}
CHANNEL = {"desk": {"provider": "folder", "options": {"path": "in"}}}


def org(base: Path, *agents: dict[str, Any], **settings: Any) -> None:
    make_org(base, resume("desk", model={"key": "desk"}), *agents, models=CHANNEL, org={**HOSTS, **settings})


def agent(name: str, *tools: str, reads: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    access = {"allow_read": ["./workspace"], "allow_write": ["./workspace"], **more.pop("access", {})}
    permissions = {"tools": [*tools], "read_outboxes": [*reads], "file_access": access}
    return resume(name, permissions=permissions, **more)


def warnings(lemming: Lemming, *words: str) -> list[str]:
    found = lemming("validate", "--json", *words).objects
    return [it["message"] for it in found if it.get("message", "").startswith("untrusted senders may")]


def test_an_agent_that_reads_a_channel_and_may_run_commands_is_named(base: Path, lemming: Lemming) -> None:
    org(base, agent("ada", "shell", reads=("desk",)), agent("bob", "shell"))
    assert warnings(lemming) == [
        "untrusted senders may make ada call shell (execute): ada reads desk, a channel, and no gate asks or blocks"
    ]
    assert warnings(lemming, "ada") == warnings(lemming)
    assert warnings(lemming, "bob") == []
    assert lemming("validate").status == 0


def test_the_way_through_other_agents_is_told(base: Path, lemming: Lemming) -> None:
    org(
        base,
        agent("ada", "file_write", reads=("desk",), access={"allow_write": ["./shared/notes"]}),
        agent("bob", reads=("ada",)),
        agent("cyd", "shell", "http_post", reads=("bob",), gates=[{"at": "call", "tool": "shell", "then": "ask"}]),
        agent("dan", "shell", "file_read", access={"allow_read": ["./shared"]}),
        agent("eve", "shell", "file_read", access={"allow_read": ["./shared/other"]}),
        agent("fay", reads=("desk",), access={"allow_write": ["./shared/other"]}),  # no tool writes there
    )
    assert warnings(lemming) == [
        "untrusted senders may make cyd call http_post (send): cyd reads bob, and bob reads ada, and ada reads "
        "desk, a channel, and no gate asks or blocks",
        "untrusted senders may make dan call shell (execute): dan reads shared/notes, which ada may write, and ada "
        "reads desk, a channel, and no gate asks or blocks",
    ]


def test_what_tools_bring_from_outside_counts(base: Path, lemming: Lemming) -> None:
    web = [agent("ada", "http_get"), agent("bob", "http_get", "http_post"), agent("cyd", "http_post")]
    make_org(base, *web, org=HOSTS)
    assert warnings(lemming) == [
        "untrusted senders may make bob call http_post (send): bob reads results of http_get, http_post, and "
        "no gate asks or blocks"
    ]
    trusted = {**HOSTS, "trust": {"tools": {"http_*": "known"}}}
    make_org(base, agent("bob", "http_get", "http_post"), org=trusted)
    assert warnings(lemming) == []


GATES = {
    "asks": ([{"at": "call", "class": "execute", "then": "ask"}], True),
    "blocks": ([{"at": "call", "tool": "shell", "then": "block"}], True),
    "allows some": ([{"at": "call", "tool": "shell", "args": {"command": "ls*"}, "then": "block"}], True),
    "of another tool": ([{"at": "call", "tool": "http_post", "then": "ask"}], False),
    "elsewhere": ([{"at": "result", "tool": "shell", "then": "block"}], False),
    "warns": ([{"at": "call", "then": "warn"}], False),
    "some words": ([{"at": "call", "deny": ["rm"], "then": "block"}], False),
    "too late": ([{"at": "call", "then": "pass"}, {"at": "call", "then": "block"}], False),
    "in time": ([{"at": "call", "then": "block"}, {"at": "call", "then": "pass"}], True),
}


@pytest.mark.parametrize("whose", ["organisation", "agent"])
@pytest.mark.parametrize(("gates", "is_enough"), GATES.values(), ids=GATES.keys())
def test_a_gate_that_decides_of_every_call_is_enough(
    base: Path, lemming: Lemming, gates: list[dict[str, Any]], is_enough: bool, whose: str
) -> None:
    if whose == "agent":
        org(base, agent("ada", "shell", reads=("desk",), gates=gates))
    else:
        org(base, agent("ada", "shell", reads=("desk",)), gates=gates)
    assert (warnings(lemming) == []) == is_enough
