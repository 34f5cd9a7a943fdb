"""Without a history the journals tell the past: what `show`, `diff` and `fork` say of it is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemming.cli import run as run_command
from lemming.engine import load_tick, run_once
from lemming.git_history.history_reader import GitHistory
from lemming.journal_tools.file_history import FILE_LIMIT_BYTES
from lemming.journal_tools.fork import SettingOverride, fork
from lemming.journal_tools.journal_history import JournalHistory, open_past
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say, tree

SCRIPT = [
    {"agent": "ada", "tick": 3, "reply": say("note", memory_updates=[{"key": "mood", "value": "calm"}])},
    {"agent": "ada", "tick": 6, "reply": say("note", memory_updates=[{"key": "mood", "value": "wild"}])},
    {"reply": say("hello")},
]
ONCE_IN_THREE = {"run_every_n_ticks": 3}


def run_ticks(base: Path, ticks: int) -> None:
    """Run ticks; before the fifth a person says something."""
    clock = FrozenClock()
    for _ in range(ticks):
        if load_tick(base) == 5:
            words = {"text": "Good morning"}
            write_person_entry(base, "human", tick=5, kind="message", payload=words, tags=[], created_at="")
        run_once(base, clock=clock)


def make(base: Path, history: str) -> Path:
    human = resume("human", model={"key": "human"})
    late = resume("bob", schedule=ONCE_IN_THREE)
    models = {"human": {"provider": "human"}}
    org = {"history": history, "durability": "off", "retention_ticks": 3}
    make_org(base, resume("ada"), late, human, script=SCRIPT, org=org, models=models)
    run_ticks(base, 8)
    return base


@pytest.fixture(scope="module")
def orgs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Twice the same eight ticks, with a history and without; tests only look at them."""
    folder = tmp_path_factory.mktemp("orgs")
    return make(folder / "kept", "git"), make(folder / "unkept", "off")


def forked(base: Path, tick: int, folder: Path) -> dict[str, bytes]:
    past = open_past(Organisation.from_path(base))
    fork(past, past.state_at_tick(tick), folder, [])
    files = tree(folder)
    del files["config/org.json"]
    return files


@pytest.mark.sample(3)
@pytest.mark.parametrize("tick", range(1, 9))
def test_a_fork_is_the_same_as_with_a_history(orgs: tuple[Path, Path], tick: int, tmp_path: Path) -> None:
    kept, unkept = (forked(base, tick, tmp_path / base.name) for base in orgs)
    assert unkept == kept


def test_a_file_that_is_too_large_is_left_out_of_a_fork_and_never_cut(tmp_path: Path) -> None:
    base = make(tmp_path / "org", "off")
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/fits.bin").write_bytes(b"0" * 1000)
    with open(base / "shared/large.bin", "wb") as file:
        file.truncate(FILE_LIMIT_BYTES + 1000)
    files = forked(base, 8, tmp_path / "fork")
    assert files["shared/fits.bin"] == b"0" * 1000
    assert "shared/large.bin" not in files


def test_what_a_tick_changed_is_the_same_as_with_a_history(orgs: tuple[Path, Path]) -> None:
    kept, unkept = GitHistory(orgs[0]), JournalHistory(Organisation.from_path(orgs[1]))
    for tick in (2, 3, 6, 8):
        for past in (kept, unkept):
            assert past.find_commit(tick)
        changes = [past.changes_between(str(tick - 1), str(tick)) for past in (kept, unkept)]
        assert changes[0].files == changes[1].files
    shown = unkept.find_commit(6)
    assert shown is not None
    diff = unkept.diff_commit(shown, agent="ada").diff
    assert '-  "value": "calm"' in diff.replace(",", "")
    assert '+  "value": "wild"' in diff.replace(",", "")


def test_an_edit_since_the_last_tick_shows_against_now(base: Path) -> None:
    make(base, "off")
    fs.write_atomic(base, "agents/ada/memory/mood.json", b"edited\n")
    files = JournalHistory(Organisation.from_path(base)).changes_between("8", "now").files
    assert [(file.path, file.change) for file in files] == [("agents/ada/memory/mood.json", "modified")]


def test_a_fork_goes_on_and_the_original_is_not_touched(orgs: tuple[Path, Path], tmp_path: Path) -> None:
    unkept, before = orgs[1], tree(orgs[1], without=())
    past = open_past(Organisation.from_path(unkept))
    setting = SettingOverride.parse("agents/bob/resume.json:/schedule/run_every_n_ticks=1")
    fork(past, past.state_at_tick(6), tmp_path / "fork", [setting])
    run_once(tmp_path / "fork", clock=FrozenClock())
    assert (tmp_path / "fork/agents/bob/turns.jsonl").read_text().splitlines()[-1].startswith('{"tick":7')
    assert (journal_ticks(tmp_path / "fork"), verify_org(tmp_path / "fork").findings) == ([*range(1, 8)], ())
    assert tree(unkept, without=()) == before


def test_before_its_first_tick_it_is_as_it_began(orgs: tuple[Path, Path], tmp_path: Path) -> None:
    files = forked(orgs[1], 0, tmp_path / "fork")
    assert json.loads(files["tick.json"]) == {"current_tick": 1}
    assert not [file for file in files if "/outbox/" in file or "/memory/" in file or "turns.jsonl" in file]


@pytest.mark.parametrize(
    ("word", "why"), [("9", "tick 9 has not run"), ("@3fa9c1", "expected a tick"), ("x", "expected a tick")]
)
def test_what_is_no_tick_of_the_past_is_refused(orgs: tuple[Path, Path], word: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        open_past(Organisation.from_path(orgs[1])).resolve_state(word)


def test_where_nothing_has_run_there_is_no_past(base: Path) -> None:
    make_org(base, resume("ada"))
    with pytest.raises(UsageError, match="no tick has run yet"):
        open_past(Organisation.from_path(base))


def test_an_old_state_is_told_by_the_journal_where_the_ledger_has_dropped_it(base: Path) -> None:
    make(base, "off")
    ledger = base / "agents/ada/turns.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    fs.write_atomic(base, "agents/ada/turns.jsonl", lines[-1])
    past = JournalHistory(Organisation.from_path(base))
    assert past.load_engine_files(4)["agents/ada/turns.jsonl"] == lines[3]


def test_the_recorded_demo_can_be_forked_at_any_tick_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo, twin = str(tmp_path / "demo"), str(tmp_path / "twin")
    for words in (
        ["init", "--template", "recorded", demo],
        ["-C", demo, "run-forever", "--until-tick", "3", "--interval", "0"],
        ["-C", demo, "fork", "--at", "1", twin],
        ["-C", twin, "run-forever", "--until-tick", "3", "--interval", "0"],
    ):
        assert run_command(words) == 0, capsys.readouterr().err
    assert "with today's resumes" in capsys.readouterr().err
    assert tree(Path(twin)) == {name: content for name, content in tree(Path(demo)).items() if name != ".gitignore"}
