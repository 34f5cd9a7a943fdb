"""The read model is a cache in the strict sense: whatever happens to it, every look says what the files say."""

from __future__ import annotations

import ast
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from package import TREES, own_imports
from test_cost import busy

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.queries.cost_report import compute_costs
from lemming.read_model import read_model
from lemming.read_model.build_options import BuildOptions
from lemming.read_model.read_model import MODEL_FILE, STAMP_FILE, ReadModel
from lemming.read_model.tick_queries import load_ticks
from lemming.read_model.tick_rows import TABLES
from lemming.testing import Crash, crash_at

Rows = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def _file_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file for few journals too."""
    monkeypatch.setattr(read_model, "MIN_BYTES_FOR_FILE", 0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation with one sealed segment, and journals beside it."""
    base = busy(tmp_path_factory.mktemp("sealed") / "org", plain_journals=0)
    for _ in range(3):
        run_once(base)
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 250}))
    for _ in range(2):
        run_once(base)
    assert len([*(base / "logs/ticks/sealed").iterdir()]) == 1
    return base


@pytest.fixture
def org(original: Path, base: Path) -> Path:
    """A copy of it that somebody has looked at."""
    shutil.copytree(original, base)
    assert look(base)[1] > 0
    return base


def look(base: Path) -> tuple[Rows, int]:
    """Return what a new process would find in the model, and how many files with journals it reads for it."""
    org, read = Organisation(base), list[int]()
    org.get_cache(BuildOptions).show_progress = lambda: nullcontext(lambda _, done, __: read.append(done))
    model = org.get_cache(ReadModel)
    model.query("SELECT 1")
    rows = {table: sorted(map(repr, model.query(f"SELECT * FROM {table}"))) for table in TABLES}
    model.close()
    return rows, len(read)


def look_anew(base: Path, tmp_path: Path) -> Rows:
    """Return what the files say, read by somebody who never looked before."""
    copy = tmp_path / f"anew-{len([*tmp_path.iterdir()])}"
    shutil.copytree(base, copy, ignore=shutil.ignore_patterns("read-model"))
    return look(copy)[0]


def test_what_was_read_is_not_read_again(org: Path) -> None:
    before = look(org)[0]
    assert look(org) == (before, 0)
    assert {len(rows) for rows in before.values()} > {0}
    assert len(before["tick"]) == len(journal_ticks(org))


def test_the_rows_say_what_the_records_say(org: Path) -> None:
    for facts in load_ticks(org):
        record = load_tick_record(org, facts.tick)
        assert facts.order == record.plan.order
        assert facts.totals == pytest.approx(record.totals)
        assert facts.turns.keys() == record.started.keys() | record.ended.keys()
        for key, turn in facts.turns.items():
            assert turn.new_entries == (record.started[key].entries if key in record.started else [])
            assert turn.report is not None
            assert turn.report["status"] == record.ended[key].report.status
            assert sum(call.credits for call in turn.calls) == record.ended[key].report.credits


def forge(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE turn SET costs = replace(costs, '0.', '9.'), agent = 'mallory'")


def test_a_forged_file_is_not_believed(org: Path) -> None:
    before = look(org)[0]
    stamp, status = (org / STAMP_FILE).read_bytes(), os.stat(org / MODEL_FILE)
    forge(org / MODEL_FILE)
    os.utime(org / MODEL_FILE, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (org / STAMP_FILE).read_bytes() == stamp
    rows, read = look(org)
    assert (rows, read > 0) == (before, True)
    assert look(org) == (before, 0)


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"SQLite format 3\0" + b"\0" * 4096, None])
def test_a_damaged_file_is_built_anew(org: Path, content: bytes | None) -> None:
    before = look(org)[0]
    raw = (org / MODEL_FILE).read_bytes()
    (org / MODEL_FILE).write_bytes(raw[: len(raw) // 2] if content is None else content)
    assert look(org)[0] == before


@pytest.mark.parametrize("stamp", [b"", b"{}", b"[]", b'{"signature": null}', b'{"signature": "00"}'])
def test_a_stamp_that_was_not_signed_here_is_not_believed(org: Path, stamp: bytes) -> None:
    before = look(org)[0]
    (org / STAMP_FILE).write_bytes(stamp)
    rows, read = look(org)
    assert (rows, read > 0) == (before, True)


def test_whoever_has_not_the_key_cannot_sign(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(org)[0]
    monkeypatch.setenv("XDG_STATE_HOME", str(org / "elsewhere"))
    rows, read = look(org)
    assert (rows, read > 0) == (before, True)


def test_a_file_of_another_organisation_is_not_believed(org: Path, tmp_path: Path) -> None:
    other = busy(tmp_path / "other")
    run_once(other)
    look(other)
    before = look(org)[0]
    for file in (MODEL_FILE, STAMP_FILE):
        shutil.copy2(other / file, org / file)
    assert look(org)[0] == before


def test_a_file_of_another_version_is_built_anew(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(org)[0]
    monkeypatch.setattr(read_model, "VERSION", "another")
    rows, read = look(org)
    assert (rows, read > 0) == (before, True)


def test_a_planted_link_or_log_is_removed_and_not_followed(org: Path, tmp_path: Path) -> None:
    before, target = look(org)[0], tmp_path / "target"
    target.write_bytes(b"mine")
    (org / MODEL_FILE).unlink()
    (org / MODEL_FILE).symlink_to(target)
    assert look(org)[0] == before
    assert target.read_bytes() == b"mine"
    (org / f"{MODEL_FILE}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 512)
    rows, read = look(org)
    assert (rows, read > 0) == (before, True)


def test_where_nothing_can_be_written_the_answers_are_the_same(org: Path) -> None:
    before = look(org)[0]
    shutil.rmtree(org / ".lemming/read-model")
    (org / ".lemming/read-model").write_bytes(b"a file in the place of the folder")
    assert look(org)[0] == before


def test_a_hand_edit_is_seen_even_if_size_and_times_stay(org: Path, tmp_path: Path) -> None:
    file = org / f"logs/ticks/{journal_ticks(org)[-1]:08}.jsonl"
    status = file.stat()
    file.write_bytes(file.read_bytes().replace(b'"status":"done"', b'"status":"fail"'))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    rows, read = look(org)
    assert rows == look_anew(org, tmp_path)
    assert read == 1


def test_a_file_that_was_only_touched_is_recognised_by_its_digest(org: Path) -> None:
    before = look(org)[0]
    (segment,) = (org / "logs/ticks/sealed").iterdir()
    os.utime(segment, ns=(1, 1))
    assert look(org) == (before, 1)


def test_changed_and_removed_segments_and_journals_are_dropped(org: Path, tmp_path: Path) -> None:
    (segment,) = (org / "logs/ticks/sealed").iterdir()
    raw = segment.read_bytes()
    segment.write_bytes(raw[:-200] + bytes([raw[-200] ^ 1]) + raw[-199:])
    rows, _ = look(org)
    assert rows == look_anew(org, tmp_path)
    assert sum("damaged" in row for row in rows["tick"]) == 3
    segment.unlink()
    assert look(org)[0] == look_anew(org, tmp_path)
    for file in (org / "logs/ticks").glob("*.jsonl"):
        file.unlink()
    assert look(org)[0] == {table: [] for table in TABLES}


def test_a_tick_beside_its_segment_is_read_from_its_own_file(org: Path, tmp_path: Path) -> None:
    from lemming.kernel.journal.journal_file import raw_journal

    fs.write_atomic(org, "logs/ticks/00000002.jsonl", raw_journal(org, 2).replace(b'"done"', b'"none"'))
    assert look(org)[0] == look_anew(org, tmp_path)
    (org / "logs/ticks/00000002.jsonl").unlink()
    assert look(org)[0] == look_anew(org, tmp_path)


def test_a_kill_while_it_is_written_costs_nothing_but_time(org: Path, tmp_path: Path) -> None:
    before = look(org)[0]
    for step in range(1, 9):
        shutil.rmtree(org / ".lemming/read-model")
        try:
            with crash_at(step):
                look(org)
        except Crash:
            assert look(org)[0] == before
    assert look(org) == (before, 0)


def test_a_copy_made_under_a_running_engine_is_right(org: Path, tmp_path: Path) -> None:
    before = look(org)[0]
    copy = tmp_path / "copy"
    shutil.copytree(org, copy)
    shutil.rmtree(copy / "logs/ticks/sealed")
    assert look(copy)[0] == look_anew(copy, tmp_path) != before
    run_once(copy)
    assert look(copy)[0] == look_anew(copy, tmp_path)
    assert look(org) == (before, 0)


def test_it_may_be_deleted_under_an_open_look(org: Path) -> None:
    model = Organisation(org).get_cache(ReadModel)
    before = model.query("SELECT * FROM turn ORDER BY tick, key")
    for act in (
        lambda: shutil.rmtree(org / ".lemming"),
        lambda: forge(org / MODEL_FILE),
        lambda: (org / MODEL_FILE).write_bytes(b"torn"),
        lambda: look(org),
    ):
        act()
        assert model.query("SELECT * FROM turn ORDER BY tick, key") == before


def test_a_block_sees_one_state(org: Path) -> None:
    model = Organisation(org).get_cache(ReadModel)
    with model.hold():
        before = model.query("SELECT count(*) FROM tick")
        run_once(org)
        assert model.query("SELECT count(*) FROM tick") == before
    assert model.query("SELECT count(*) FROM tick") > before


def test_processes_may_look_at_once(org: Path) -> None:
    shutil.rmtree(org / ".lemming/read-model")
    code = (
        "import sys; from pathlib import Path; from lemming.read_model import read_model; "
        "read_model.MIN_BYTES_FOR_FILE = 0; from lemming.read_model.tick_queries import load_ticks; "
        "print([(it.tick, len(it.turns)) for _ in range(20) for it in load_ticks(Path(sys.argv[1]))])"
    )
    looks = [subprocess.Popen((sys.executable, "-c", code, str(org)), stdout=subprocess.PIPE) for _ in range(3)]
    answers = {look.communicate()[0] for look in looks}
    assert answers == {f"{[(it.tick, len(it.turns)) for _ in range(20) for it in load_ticks(org)]}\n".encode()}


def test_several_processes_build_what_one_builds(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(org)[0]
    shutil.rmtree(org / ".lemming/read-model")
    monkeypatch.setattr(read_model, "MIN_TICKS_FOR_PROCESSES", 1)
    monkeypatch.setattr(read_model, "SOURCES_PER_CHUNK", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    looked_at = Organisation(org)
    looked_at.get_cache(BuildOptions).uses_all_cores = True
    assert looked_at.get_cache(ReadModel).query("SELECT count(*) FROM tick") == [(len(journal_ticks(org)),)]
    looked_at.close()
    assert look(org) == (before, 0)


def test_few_journals_are_read_without_a_file(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(org / ".lemming/read-model")
    monkeypatch.setattr(read_model, "MIN_BYTES_FOR_FILE", 1 << 30)
    before = compute_costs(org, "agent")
    assert not (org / ".lemming/read-model").exists()
    monkeypatch.setattr(read_model, "MIN_BYTES_FOR_FILE", 0)
    assert compute_costs(org, "agent") == before
    assert (org / MODEL_FILE).exists()


def test_without_sqlite_the_engine_runs_and_costs_say_what_is_missing(org: Path) -> None:
    code = (
        "import sys; sys.modules['_sqlite3'] = None; "
        "from importlib.util import find_spec; import importlib.util as util; "
        "util.find_spec = lambda name, *rest: None if name == '_sqlite3' else find_spec(name, *rest); "
        "from lemming.__main__ import main; main()"
    )

    def lemming(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-c", code, "-C", str(org), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert lemming("run-once").returncode == 0
    assert lemming("waiting", "--json").returncode in (0, 1)
    refused = lemming("cost")
    assert refused.returncode == 2
    assert "this Python has no sqlite3" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nothing_that_decides_asks_it() -> None:
    asked = {"read_model.read_model", "read_model.tick_queries"}
    decides = ("kernel/", "operations/", "journal_tools/verify/", "journal_tools/replay/", "journal_tools/repair/",
               "capabilities/gates/", "capabilities/approvals/", "capabilities/requests/", "capabilities/trust/labels",
               "engine.py")  # fmt: skip
    found = [
        f"{name} imports {module}"
        for name in TREES
        if name.startswith(decides)
        for module in own_imports(name)
        if module in asked
    ]
    assert found == []
    assert any(isinstance(node, ast.Import) for node in ast.walk(TREES["read_model/read_model.py"]))


def test_two_open_looks_share_the_file_that_one_of_them_built_anew(org: Path) -> None:
    orgs, read = [Organisation(org) for _ in range(2)], list[int]()
    for looked_at in orgs:
        looked_at.get_cache(BuildOptions).show_progress = lambda: nullcontext(lambda _, done, __: read.append(done))

    def look_with_both() -> int:
        read.clear()
        for looked_at in orgs:
            looked_at.get_cache(ReadModel).query("SELECT 1")
        return len(read)

    assert look_with_both() == 0
    shutil.rmtree(org / ".lemming/read-model")
    assert look_with_both() > 0
    assert [look_with_both() for _ in range(3)] == [0, 0, 0]


def test_a_holder_of_the_lock_that_never_ends_holds_nobody_up(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lemming.kernel.files import folder_lock

    monkeypatch.setattr(folder_lock, "MAX_TRIES", 1)
    before = look(org)[0]
    with folder_lock.lock_folder(org, read_model.FOLDER):
        assert look(org)[0] == before
    assert look(org) == (before, 0)


def test_two_formats_of_a_segment_and_names_that_nobody_reads(org: Path, tmp_path: Path) -> None:
    before = look(org)[0]
    (segment,) = (org / "logs/ticks/sealed").iterdir()
    others = [segment.with_name(name) for name in ("00000000-00000099.zip", "00000000-00000049.jsonl.xz")]
    for other in (*others, segment.with_name("00000000-99999999999.jsonl.xz")):
        shutil.copy2(segment, other)
    assert look(org)[0] == look_anew(org, tmp_path)
    for other in others:
        other.unlink()
        assert look(org)[0] == look_anew(org, tmp_path)
    assert look(org)[0] == before


def test_a_write_that_ends_halfway_leaves_no_stamp(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_once(org)
    monkeypatch.setattr(read_model, "insert_tick", raise_crash)
    with pytest.raises(Crash):
        look(org)
    assert not (org / STAMP_FILE).exists()


def raise_crash(*_: object) -> None:
    raise Crash
