"""Copies of an organisation with workers: a backup, a fork, and one without `.lemming/`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from merge_org import find_waiting_id, make_asking_org, read_site
from terminal import typed_at

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.obligations.write_decisions import decide


def require_mergeable(base: Path) -> None:
    """Approve the waiting merge, and check that it is made."""
    decide(base, find_waiting_id(base), "approve")
    run_once(base)
    assert read_site(base, "show", "lemming/coder:b.txt") == "new"
    assert not verify_org(base).errors


def test_a_patch_that_waits_needs_nothing_below_the_engines_own_folder(base: Path) -> None:
    shutil.rmtree(base / ".lemming")
    require_mergeable(base)


def test_a_restored_backup_has_the_patch_that_waits(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lemming = typed_at(base, capsys)
    assert lemming("backup", f"{base.parent}/b.tar.gz").status == 0
    assert lemming("restore", f"{base.parent}/b.tar.gz", f"{base.parent}/restored").status == 0
    require_mergeable(base.parent / "restored")


def test_a_fork_has_the_patches_of_its_journals(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed_at(base, capsys)("fork", f"{base.parent}/forked", "--at", "1").status == 0
    require_mergeable(base.parent / "forked")


@pytest.mark.long
def test_a_rehearsal_takes_recorded_patches_and_changes_no_branch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, site = make_asking_org(tmp_path, f"echo run >> {tmp_path}/runs; cat > b.txt; echo done", gates=[])
    run_once(base)
    head = read_site(base, "rev-parse", "lemming/coder")
    lemming = typed_at(base, capsys)
    same = lemming("rehearse", "--ticks", "1", "--trust")
    assert (same.status, same.out) == (0, "no differences\n")
    assert (tmp_path / "runs").read_text() == "run\n"
    changed = lemming(
        "rehearse", "--ticks", "1", "--trust", "--set", 'agents/coder/resume.json:/instructions="Be brief."'
    )
    assert "not made: this is a rehearsal" in changed.out
    assert (tmp_path / "runs").read_text() == "run\n" * 2
    assert read_site(base, "rev-parse", "lemming/coder") == head
    assert site.is_dir()
