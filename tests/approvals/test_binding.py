"""What a call is bound to: the files that it names, as the tool that it is of would take them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.agents import load_agent
from lemming.obligations.file_bindings import (
    ALWAYS,
    MAX_SHOWN_CHARS,
    MISSING_FILE,
    ApprovalBinding,
    compute_binding,
    find_unbindable_effects,
)
from lemming.testing import make_org, resume

HOME = "agents/ada/workspace"
LONG = "x" * (MAX_SHOWN_CHARS - 1)
STANDS_FOR = "what it stands for when it runs"


@pytest.fixture
def org(tmp_path: Path) -> Path:
    base = make_org(tmp_path / "org", resume("ada"))
    (base / HOME / "sub").mkdir(parents=True)
    return base


def bound(org: Path, tool_class: str, args: dict[str, Any], **staged: bytes) -> ApprovalBinding:
    return compute_binding(load_agent(org, "ada"), org, tool_class, args, staged)


@pytest.mark.parametrize("tool_class", ["read", "write"])
@pytest.mark.parametrize("key", ["path", "file", "source", "destination"])
def test_a_file_that_is_to_come_is_bound_where_a_tool_of_files_names_it(org: Path, tool_class: str, key: str) -> None:
    assert bound(org, tool_class, {key: "new.txt"}).files == {f"{HOME}/new.txt": MISSING_FILE}


@pytest.mark.parametrize("tool_class", ["send", "execute", "administer"])
def test_what_another_tool_calls_a_file_need_not_be_one(org: Path, tool_class: str) -> None:
    assert bound(org, tool_class, {"file": "new.txt"}).files == {}


def test_a_text_that_names_no_file_is_not_bound_to_one_that_is_missing(org: Path) -> None:
    assert bound(org, "write", {"path": "new.txt", "content": "x"}).files == {f"{HOME}/new.txt": MISSING_FILE}


def test_only_of_a_command_it_is_said_what_it_may_come_to_do(org: Path) -> None:
    assert bound(org, "write", {"path": "sub", "content": "$HOME *.sh F=1"}).unbound == []
    assert ALWAYS in bound(org, "execute", {"command": "ls"}).unbound


@pytest.mark.parametrize("name", ["new.sh", "sub/../new.sh", "link/new.sh"])
def test_a_file_that_the_turn_has_yet_to_write_is_bound_however_it_is_named(org: Path, name: str) -> None:
    (org / HOME / "link").symlink_to(".")
    found = bound(org, "execute", {"command": f"sh {name}"}, **{f"{HOME}/new.sh": b"echo new"})
    assert found.files == {f"{HOME}/new.sh": sha256(b"echo new").hexdigest()}


def test_what_is_in_a_folder_that_a_command_names_is_said_to_be_unbound(org: Path) -> None:
    assert f"what is in the folder {HOME}/sub" in bound(org, "execute", {"command": "ls sub"}).unbound
    assert "what is in the folder ." in bound(org, "execute", {"command": f"ls {org}"}).unbound


@pytest.mark.parametrize("command", ["ls .", "ls ./"])
def test_the_folder_that_every_command_runs_in_is_not_named_for_each(org: Path, command: str) -> None:
    assert "what is in the folder" not in "; ".join(bound(org, "execute", {"command": command}).unbound)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("F=1 ls", ["F=1: what a variable of that name changes"]),
        ("ls --colour=no", []),
        ("ls 1=2", []),
        (f"{LONG}.$", [f"{LONG}.… ({MAX_SHOWN_CHARS + 1} characters): {STANDS_FOR}"]),
        (f"{LONG}$", [f"{LONG}$: {STANDS_FOR}"]),
    ],
    ids=["assignment", "option", "number", "longer than is shown", "as long as is shown"],
)
def test_a_word_that_may_stand_for_something_else_is_told(command: str, said: list[str]) -> None:
    assert find_unbindable_effects(command) == [*said, ALWAYS]
