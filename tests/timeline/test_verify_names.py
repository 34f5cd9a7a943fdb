"""Verify, where agents have been renamed or removed, and others have their names now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from recorded import TICKS, edit

from lemming.engine import run_once
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.verify.file_verification import Verification, verify_org
from lemming.kernel.files import fs
from lemming.testing import resume


def verify(base: Path) -> Verification:
    """Verify with every journal taken apart, and see that reading only what names files finds the same."""
    whole = verify_org(base)
    assert verify_org(base, newest=0).findings == whole.findings
    return whole


def hire(base: Path, name: str) -> None:
    fs.write_atomic(base, f"agents/{name}/resume.json", json.dumps(resume(name)).encode())


def test_the_entries_of_a_renamed_agent_are_accounted_for(org: Path) -> None:
    rename_agent(org, "ada", "eve")
    assert {finding.file for finding in verify(org).findings if "/outbox/" in finding.file} == set()
    assert verify(org).errors == []


def test_an_entry_that_was_changed_beside_its_author_is_not_taken_for_a_renamed_agents(org: Path) -> None:
    rename_agent(org, "ada", "eve")
    name = sorted((org / "agents/eve/outbox").iterdir())[0].name
    edit(org, f"agents/eve/outbox/{name}", '"text": "', '"text": "not ')
    assert {f.file for f in verify(org).findings if "/outbox/" in f.file} == {
        f"agents/{author}/outbox/{name}" for author in ("ada", "eve")
    }


@pytest.mark.parametrize("renamed", [True, False])
def test_a_new_agent_with_the_name_of_an_earlier_one_is_no_damage(org: Path, renamed: bool) -> None:
    turns = verify(org).turns
    if renamed:
        rename_agent(org, "ada", "eve")
    else:
        shutil.rmtree(org / "agents/ada")
    hire(org, "ada")
    run_once(org)
    result = verify(org)
    assert result.errors == []
    assert result.turns > turns
    messages = {finding.message for finding in result.findings if "/ada/outbox/" in finding.file}
    begun = f"an earlier ada wrote it, and a new one began in tick {TICKS + 1}"
    assert messages == (set() if renamed else {f"does not exist; {begun}"})


def test_an_entry_of_the_new_agent_is_missed_as_ever(org: Path) -> None:
    shutil.rmtree(org / "agents/ada")
    hire(org, "ada")
    run_once(org)
    file = next((org / "agents/ada/outbox").iterdir())
    file.unlink()
    assert [finding.file for finding in verify(org).errors] == [f"agents/ada/outbox/{file.name}"]
