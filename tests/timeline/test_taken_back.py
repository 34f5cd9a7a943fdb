"""An organisation whose files go back or come from elsewhere: `git reset`, `git clone`, a copy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lemming.engine import load_tick, run_once
from lemming.import_export.apply_document import load_template
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.repair.damage_repair import find_repairs, make_repairs
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import TickAlreadyCommitted
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import list_outbox
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, make_org, resume, tree


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


def kept(base: Path, ignore: bytes, ticks: int = 5) -> Path:
    """An organisation under git, with a commit after each tick."""
    make_org(base, resume("ada", credits={"max_credits": 100}))
    (base / ".gitignore").write_bytes(ignore)
    git(base, "init")
    for _ in range(ticks):
        run_once(base)
        git(base, "add", "-A")
        git(base, "commit", "-qm", "a tick")
    return base


IGNORE = load_template("empty")[".gitignore"]
WITHOUT_JOURNALS = b".lemming/\nlogs/\n"


def test_git_reset_goes_back_and_on_with_the_templates_gitignore(base: Path) -> None:
    kept(base, IGNORE)
    git(base, "reset", "--hard", "HEAD~2")
    assert (load_tick(base), journal_ticks(base)) == (4, [1, 2, 3])
    report = run_once(base)
    assert (report.tick, report.turns[0].status) == (4, "done")
    assert read_state(base, "ada").credits == 4


def test_a_clone_has_its_past_with_the_templates_gitignore(base: Path, tmp_path: Path) -> None:
    kept(base, IGNORE)
    git(tmp_path, "clone", "-q", str(base), str(tmp_path / "clone"))
    clone = tmp_path / "clone"
    assert load_tick_record(clone, 3).turns[0].agent == "ada"
    assert verify_org(clone).errors == []
    assert run_once(clone).tick == 6


@pytest.mark.parametrize("back", [1, 3])
def test_files_that_went_back_without_their_journals_are_told_with_the_way_out(base: Path, back: int) -> None:
    kept(base, WITHOUT_JOURNALS)
    git(base, "reset", "--hard", f"HEAD~{back}")
    tick = 6 - back
    with pytest.raises(TickAlreadyCommitted, match=f"the files are from before tick {tick}") as refused:
        run_once(base)
    assert "lemming repair --yes" in refused.value.hint
    with open_org(base) as runtime:
        make_repairs(runtime, [repair for repair in find_repairs(base) if repair.steps])
    assert find_repairs(base) == []
    assert run_once(base).tick == tick
    assert read_state(base, "ada").credits == tick
    aside = [path.name for path in sorted(base.glob("aside/*/logs/ticks/*.jsonl"))]
    assert aside == [f"{later:08d}.jsonl" for later in range(tick, 6)]


def test_a_backup_copied_over_what_is_there_leaves_no_entries_of_ticks_that_never_were(
    base: Path, tmp_path: Path
) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}))
    for _ in range(3):
        run_once(base)
    shutil.copytree(base, tmp_path / "backup")
    for _ in range(3):
        run_once(base)
    shutil.copytree(tmp_path / "backup", base, dirs_exist_ok=True)
    assert len(list_outbox(base, "ada")) == 6
    with pytest.raises(TickAlreadyCommitted, match="the files are from before tick 4"):
        run_once(base)
    with open_org(base) as runtime:
        make_repairs(runtime, [repair for repair in find_repairs(base) if repair.steps])
    assert [entry.tick for entry in list_outbox(base, "ada")] == [1, 2, 3]
    assert run_once(base).tick == 4
    assert verify_org(base).errors == []


def test_a_machine_that_was_restarted_does_not_take_old_files_for_a_lost_counter(base: Path) -> None:
    kept(base, WITHOUT_JOURNALS)
    git(base, "reset", "--hard", "HEAD~1")
    before = tree(base)
    with pytest.raises(TickAlreadyCommitted, match="the files are from before tick 5"):
        run_once(base, clock=FrozenClock(boot_id="another"))
    assert tree(base) == before


def test_a_counter_alone_that_went_back_is_still_set_forward(base: Path) -> None:
    kept(base, IGNORE)
    (base / "tick.json").write_text('{"current_tick": 3}')
    with pytest.raises(TickAlreadyCommitted, match=r"tick 3 (is over|has been run)"):
        run_once(base)
    with open_org(base) as runtime:
        make_repairs(runtime, find_repairs(base))
    assert run_once(base).tick == 6


def test_a_copy_of_an_idle_organisation_goes_on_where_it_was(base: Path, tmp_path: Path) -> None:
    kept(base, IGNORE)
    shutil.copytree(base, tmp_path / "copy")
    assert verify_org(tmp_path / "copy").errors == []
    assert run_once(tmp_path / "copy").tick == 6
