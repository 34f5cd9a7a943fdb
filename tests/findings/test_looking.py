"""What run `lemming findings` at, what settings change of it, and where else findings are told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from circling import NOTHING, PEOPLE, by_ticks, calls, found_in, kinds, org_of, person, run
from corpus import BY_NAME
from terminal import Lemming, typed_at

from lemming.cli import run as run_command
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.checks.file_checks import find_structure_problems
from lemming.queries.findings.finding_rules import CHECKS, apply_rules, find_findings
from lemming.queries.findings.finding_scan import scan_ticks
from lemming.testing import make_org, resume, say, tree

HEALTHY = [
    "plain", "tools", "staff", "wildcards", "idle", "spending", "broken", "acting", "crowd", "mixed",
    "hiring", "paused", "dropped", "by_the_clock", "filing", "keeping",
]  # fmt: skip
STUCK = [{"agent": "ada", "reply": say("la la \x1b[2J")}, {"reply": NOTHING}]


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve ticks in which ada repeats herself, and bob does nothing at a cost."""
    base = tmp_path_factory.mktemp("findings") / "stuck"
    org_of(base, resume("ada"), resume("bob"), script=STUCK)
    run(base, 12)
    return base


@pytest.fixture
def lemming(stuck: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that works on it."""
    return typed_at(stuck, capsys)


@pytest.fixture
def changed(stuck: Path) -> Iterator[Path]:
    """The same, with settings and journals that a test may change."""
    kept = {file: (stuck / file).read_bytes() for file in ("config/org.json", "logs/ticks/00000012.jsonl")}
    yield stuck
    for file, content in kept.items():
        fs.write_atomic(stuck, file, content)


# --- what is looked at -----------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_in_organisations_that_do_what_they_should(name: str, base: Path) -> None:
    case = BY_NAME[name]
    case.build(base, {"durability": "off"})
    assert found_in(base, case.ticks) == []


def test_nothing_is_found_in_the_recorded_demonstration(base: Path) -> None:
    run_command(["init", str(base), "--template", "recorded", "--quiet"])
    assert found_in(base, 20) == []


def test_looking_writes_nothing_and_finds_the_same_again(stuck: Path) -> None:
    before = tree(stuck)
    found = find_findings(stuck)
    assert kinds(found) == ["repeats", "no_progress"]
    assert find_findings(stuck) == found
    assert tree(stuck) == before


def test_ticks_before_the_window_are_not_looked_at(changed: Path) -> None:
    fs.write_atomic(changed, "config/org.json", dump_pretty({"findings": {"window": 2}}))
    assert find_findings(changed) == []
    assert kinds(find_findings(changed, first=1, last=11)) == ["repeats", "no_progress"]


def test_the_window_ends_where_there_are_too_many_turns(stuck: Path) -> None:
    look = scan_ticks(stuck, max_turns=5)
    assert (look.first_tick, len(look.turns)) == (10, 6)


def test_of_very_many_entries_the_requests_of_the_window_are_looked_at(base: Path) -> None:
    ada = resume("ada", turn={"take": "all"})
    org_of(base, person(), ada, script=[{"reply": NOTHING}], dropped=2)
    plain = {"text": "what?", "target": "ada"}
    for tick in (1, 3):
        write_person_entry(base, "human", tick=tick, kind="request", payload=plain, tags=[], created_at="")
        run(base, 2)
    look = scan_ticks(base, first=3)
    assert [it.tick for it in apply_rules(look)] == [1, 3]
    assert [it.tick for it in apply_rules(replace(look, max_entries=2))] == [1, 3]
    assert [it.tick for it in apply_rules(replace(look, max_entries=1))] == [3]


def test_a_damaged_journal_is_passed_over_and_counted(changed: Path, lemming: Lemming) -> None:
    file = changed / "logs/ticks/00000012.jsonl"
    file.write_bytes(file.read_bytes().replace(b"ada", b"eve", 1))
    ran = lemming("findings")
    assert "2 findings in ticks 1 to 11" in ran.err
    assert "not read: 1 journal" in ran.err


def test_a_turn_under_way_is_not_looked_at(changed: Path) -> None:
    file = changed / "logs/ticks/00000012.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]))
    assert len(scan_ticks(changed).turns) == 22


# --- settings --------------------------------------------------------------------------------------


def test_a_kind_that_is_off_is_not_told(changed: Path) -> None:
    fs.write_atomic(changed, "config/org.json", dump_pretty({"findings": {"off": ["repeats"]}}))
    assert kinds(find_findings(changed)) == ["no_progress"]


@pytest.mark.parametrize("kind", ["repeats", "no_progress"])
def test_a_higher_limit_tells_later(changed: Path, kind: str) -> None:
    fs.write_atomic(changed, "config/org.json", dump_pretty({"findings": {kind: 13}}))
    assert kind not in kinds(find_findings(changed))


def test_settings_that_are_no_kind_are_named(changed: Path, lemming: Lemming) -> None:
    fs.write_atomic(changed, "config/org.json", dump_pretty({"findings": {"off": ["nagging"], "repeat": 4}}))
    ran = lemming("validate")
    assert "/findings/off" in ran.out + ran.err
    assert "repeat" in ran.out + ran.err


def test_every_kind_has_one_rule() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) == 9


# --- commands --------------------------------------------------------------------------------------


def test_the_command_tells_what_whose_and_what_may_help_and_no_text_steers_the_terminal(lemming: Lemming) -> None:
    ran = lemming("findings")
    assert ran.status == 0
    assert "repeats itself  ada  since tick 1" in ran.out
    assert "1/ada" in ran.out
    assert "\x1b" not in ran.out
    assert "2 findings in ticks 1 to 12 (24 turns)" in ran.err


def test_the_command_tells_of_one_agent_of_one_kind_and_of_some_ticks(lemming: Lemming) -> None:
    assert [it["agents"] for it in lemming("findings", "bob", "--json").objects] == [["bob"]]
    assert [it["kind"] for it in lemming("findings", "--kind", "repeats", "--json").objects] == ["repeats"]
    (found,) = lemming("findings", "--ticks", "4..8", "--json").objects
    assert (found["since_tick"], found["evidence"][-1]) == (4, "8/ada")


@pytest.mark.parametrize(("words", "status"), [((), 1), (("ada",), 1), (("--ticks", "1..2"), 0)])
def test_check_ends_with_1_where_something_is_found(lemming: Lemming, words: tuple[str, ...], status: int) -> None:
    assert lemming("findings", "--check", *words).status == status


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--kind", "repeat"], "repeats"),
        (["--ticks", "ten"], "3..9"),
        (["--ticks", ".."], "3..9"),
        (["--ticks", "9..3"], "3..9"),
        (["adda"], "ada"),
    ],
)
def test_what_is_typed_wrong_is_told_with_what_to_type(lemming: Lemming, words: list[str], hint: str) -> None:
    ran = lemming("findings", *words)
    assert ran.status == 2
    assert hint in ran.err


def test_status_says_how_many_there_are_and_only_then(lemming: Lemming, changed: Path) -> None:
    assert "2 findings; `lemming findings` lists them" in lemming("status").out
    assert lemming("status", "--json").objects[0]["findings"] == 2
    fs.write_atomic(changed, "config/org.json", dump_pretty({"findings": {"off": ["repeats", "no_progress"]}}))
    assert "lemming findings" not in lemming("status").out


def test_status_does_not_count_them_in_journals_that_take_long_to_read(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lemming = typed_at(base, capsys)
    org_of(base, resume("ada"), script=by_ticks("ada", *["long " * 8_000] * 9))
    run(base, 3)
    assert lemming("status", "--json").objects[0]["findings"] == 1
    run(base, 6)
    assert lemming("status", "--json").objects[0]["findings"] is None
    assert "run `lemming findings`" in lemming("status").out


@pytest.mark.parametrize("change", ["kept", "gone", "changed"])
def test_what_is_found_does_not_hang_on_the_files_of_entries(base: Path, change: str) -> None:
    org_of(base, resume("ada"), script=by_ticks("ada", *["All is well."] * 4))
    run(base, 4)
    for file in sorted((base / "agents/ada/outbox").iterdir()) if change != "kept" else ():
        if change == "gone":
            file.unlink()
        else:
            file.write_text(file.read_text().replace("well", f"other {file.name}"))
    found = [it for it in find_findings(base) if it.kind == "repeats"]
    assert [it.message for it in found] == ['ada wrote the same message, "All is well.", in 4 turns']


@pytest.mark.parametrize("change", ["", "tools"])
def test_status_loads_what_takes_turns_only_where_tools_were_called(base: Path, change: str) -> None:
    replies = [calls("file_list", path="."), say("done")] if change else [say("done")]
    org_of(base, resume("ada", permissions={"tools": ["file_list"]}), script=[{"reply": it} for it in replies])
    run(base, len(replies))
    code = "import sys; from lemming.cli import run; run(['status']); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=base, capture_output=True, text=True, check=False)
    loaded = set(ran.stderr.split())
    assert "lemming.queries.findings" in loaded
    assert ("lemming.kernel.turn" in loaded) == bool(change)


# --- what is known before a tick runs --------------------------------------------------------------


def warnings(base: Path, *resumes: dict[str, Any], **org: Any) -> list[str]:
    """Return what is said of the structure of an organisation of these agents."""
    make_org(base, *resumes, org=org, models=PEOPLE)
    subject = CheckSubject(org=Organisation(base), config=load_config(base))
    return [problem.message for problem in find_structure_problems(subject)]


def reads(name: str, *authors: str, **blocks: Any) -> dict[str, Any]:
    """Return the resume of an agent that reads these."""
    return resume(name, permissions={"read_outboxes": [*authors], **blocks.pop("permissions", {})}, **blocks)


def test_who_writes_for_nobody_is_named_where_there_are_people(base: Path) -> None:
    human = {**person(), "permissions": {"read_outboxes": ["bob"]}}
    assert warnings(base, reads("ada", "bob"), reads("bob"), human) == ["no agent reads the entries of ada"]


def test_who_acts_by_tools_or_is_paused_need_not_be_read(base: Path) -> None:
    human = {**person(), "permissions": {"read_outboxes": []}}
    writer = reads("ada", permissions={"tools": ["file_write"]})
    assert warnings(base, writer, reads("cyd", paused="now"), human) == []


WAKES = {"schedule": {"wake": "changed"}}


def test_agents_that_wake_each_other_without_end_are_named(base: Path) -> None:
    ring = reads("ada", "cyd", **WAKES), reads("bob", "ada", **WAKES), reads("cyd", "bob", **WAKES)
    assert warnings(base, *ring) == ["ada, bob, cyd wake each other endlessly, each by its own entries"]


@pytest.mark.parametrize(
    "damper",
    [{"credits": {"max_credits": 5}}, {"schedule": {"wake": "addressed"}}, {"gates": [
        {"at": "spend", "credits": 5, "per": "agent", "then": "block"}
    ]}],
)  # fmt: skip
def test_a_cycle_that_something_ends_is_none(base: Path, damper: dict[str, Any]) -> None:
    assert warnings(base, reads("ada", "bob", **WAKES), reads("bob", "ada", **{**WAKES, **damper})) == []


def writes(name: str, *places: str) -> dict[str, Any]:
    """Return the resume of an agent that may write at these places, and is read by all."""
    access = {"allow_read": [], "allow_write": [*places]}
    return resume(name, permissions={"read_outboxes": ["*"], "tools": ["file_write"], "file_access": access})


def test_a_file_that_two_may_write_is_named_once(base: Path) -> None:
    told = "bob may also write shared/plan.md: the last writer overwrites the other"
    assert warnings(base, writes("ada", "./shared/plan.md"), writes("bob", "./shared/plan.md")) == [told]
    assert warnings(base, writes("ada", "./shared/plan.md"), writes("bob", "./shared")) == [told]


def test_a_folder_that_two_may_write_and_files_of_their_own_are_fine(base: Path) -> None:
    assert warnings(base, writes("ada", "./shared"), writes("bob", "./shared")) == []
    assert warnings(base, writes("ada", "./shared/a.md"), writes("bob", "./shared/b.md")) == []
