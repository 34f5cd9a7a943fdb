"""Each capability can be taken out: its folder deleted, the rest works; who uses it is refused in words."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from package import PACKAGE
from taken_out import LINES, NAMED_BY_ALL, NAMES_IT, PEOPLE, TESTS, WRITES, folders, plain, python, without

from lemming.capabilities.batches.batch_records import BatchAnnounced
from lemming.engine import run_once
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import TickStarted
from lemming.kernel.plugins.capability_table import SHIPPED
from lemming.kernel.plugins.shipped_capabilities import MODEL_SERVERS
from lemming.libraries.compatible_servers import SERVERS
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

GUIDE = ("test_guide.py", "test_guide_formats.py", "test_guide_providers.py")
KERNEL = ("engine", "values")
CORPUS = "engine/test_corpus_at_once.py"
"""What runs organisations that use everything there is."""
RUN = """
import sys
from lemming.engine import run_once
from lemming.testing import FrozenClock
for base in sys.argv[1:]:
    for _ in range(2):
        report = run_once(base, clock=FrozenClock())
    print([(turn.agent, turn.status, turn.reason) for turn in report.turns])
"""


def pytest_in(place: Path, *paths: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the package of this folder."""
    folders = [TESTS, *(it for it in TESTS.iterdir() if it.is_dir() and it.name != "__pycache__")]
    where = f"pythonpath={' '.join(map(str, [place, PACKAGE.parent, *folders]))}"
    files = [path if path.startswith("-") else str(TESTS / path) for path in paths]
    return python(place, "-m", "pytest", "-c", str(PACKAGE.parent / "pyproject.toml"), "-o", where, *files)


def test_the_tests_of_the_guide_pass_without_any(tmp_path: Path) -> None:
    found = pytest_in(without("", tmp_path), *GUIDE)
    assert found.returncode == 0, found.stdout[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("name", SHIPPED)
def test_the_tests_of_the_guide_pass_without_it(tmp_path: Path, name: str) -> None:
    found = pytest_in(without(name, tmp_path), *GUIDE)
    assert found.returncode == 0, found.stdout[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("name", SHIPPED)
def test_the_tests_of_the_kernel_pass_without_it(tmp_path: Path, name: str) -> None:
    found = pytest_in(without(name, tmp_path), *KERNEL, f"--ignore={TESTS / CORPUS}")
    assert found.returncode == 0, found.stdout[-2000:]


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", SHIPPED)
def test_a_plain_organisation_comes_to_the_same_state_root_without_it(tmp_path: Path, name: str) -> None:
    """And who names it is refused and told what is missing: one process runs both."""
    here, there = plain(tmp_path / "here"), plain(tmp_path / "there")
    for _ in range(2):
        run_once(here, clock=FrozenClock())
    bases = [plain(tmp_path / f"org{number}", **key) for number, key in enumerate(NAMES_IT.get(name, []))]
    (tmp_path / "taken").mkdir()
    found = python(without(name, tmp_path / "taken"), "-c", RUN, *map(str, (there, *bases)))
    assert found.returncode == 0, found.stderr
    assert load_state_root(there) == load_state_root(here)
    for base, turns in zip(bases, found.stdout.splitlines()[1:], strict=True):
        assert f'the capability "{name}" is not installed' in turns
        assert "('bob', 'done', '')" in turns
        assert not [*base.glob("agents/ada/outbox/*")]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["attachments", "toolbox", "mcp"])
def test_all_tools_are_those_that_are_here(tmp_path: Path, name: str) -> None:
    base = plain(tmp_path / "org", permissions={"tools": ["*"]})
    (tmp_path / "taken").mkdir()
    place = without(name, tmp_path / "taken")
    found = python(place, "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert "('ada', 'done', '')" in found.stdout
    checked = python(place, "-m", "lemming", "-C", str(base), "validate")
    assert checked.returncode == 0, checked.stderr


def test_a_gate_of_all_agents_that_asks_stops_the_run_where_nobody_is_asked(tmp_path: Path) -> None:
    base = plain(tmp_path / "org")
    (base / "config/org.json").write_text(json.dumps({"gates": [{"at": "out", "then": "ask"}]}))
    (tmp_path / "taken").mkdir()
    found = python(without("approvals", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode != 0
    assert 'the capability "approvals" is not installed' in found.stderr
    assert not [*base.glob("agents/*/outbox/*")]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMED_BY_ALL)
def test_a_key_of_all_agents_stops_the_run_where_nobody_reads_it(tmp_path: Path, name: str) -> None:
    base = plain(tmp_path / "org")
    (base / "config/org.json").write_text(json.dumps(NAMED_BY_ALL[name]))
    (tmp_path / "taken").mkdir()
    found = python(without(name, tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode != 0
    assert '" is not installed: ' in found.stderr
    assert f': the capability "{name}" is not installed' in found.stderr
    assert not [*base.glob("agents/*/outbox/*")]


def test_a_request_with_a_goal_is_not_answered_where_nobody_checks(tmp_path: Path) -> None:
    human = resume("human", model={"key": "human"})
    script = [{"reply": say("hello", kind="response")}]
    base = make_org(tmp_path / "org", resume("ada"), resume("bob"), human, models=PEOPLE, script=script)
    payload = {"text": "Well?", "target": "ada", "until": {"by": "bob"}}
    write_person_entry(base, "human", tick=0, kind="request", payload=payload, tags=[], created_at="")
    (tmp_path / "taken").mkdir()
    found = python(without("goals", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert 'the capability "goals" is not installed' in found.stdout
    assert not [*base.glob("agents/ada/outbox/*")]


def test_what_waits_for_a_person_stops_its_agent_where_nobody_is_asked(tmp_path: Path) -> None:
    call = {"tool_calls": [{"tool": "file_write", "args": {"path": "./workspace/a.txt", "content": "x"}}]}
    gates = [{"at": "call", "tool": "file_write", "then": "ask"}]
    script = [{"agent": "ada", "reply": call}, {"reply": say("hello")}]
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    ada = resume("ada", gates=gates, permissions={**WRITES, "read_outboxes": ["human"]})
    base = make_org(tmp_path / "org", ada, resume("bob"), human, models=PEOPLE, script=script)
    run_once(base, clock=FrozenClock())
    plain_ada = json.loads((base / "agents/ada/resume.json").read_text())
    (base / "agents/ada/resume.json").write_text(json.dumps({**plain_ada, "gates": []}))
    (tmp_path / "taken").mkdir()
    found = python(without("approvals", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert 'the capability "approvals" is not installed' in found.stdout
    assert "('bob', 'done', '')" in found.stdout


def test_a_request_whose_answer_nobody_can_hold_to_its_schema_is_not_answered(tmp_path: Path) -> None:
    asks = {"kind": "request", "payload": {"text": "how much?", "target": "ada", "schema": {"type": "object"}}}
    script = [{"agent": "bob", "tick": 1, "reply": {"outbox_entries": [asks]}}, {"reply": say("hello")}]
    ada = resume("ada", turn={"take": "one"}, schedule={"wake": "addressed"})
    base = make_org(tmp_path / "org", ada, resume("bob"), script=script)
    (tmp_path / "taken").mkdir()
    found = python(without("answers", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert "('ada', 'failed', 'the capability \"answers\" is not installed" in found.stdout
    assert not [*base.glob("agents/ada/outbox/*")]


def test_who_takes_requests_with_all_else_is_kept_from_one_with_a_schema_too(tmp_path: Path) -> None:
    payload = {"text": "how much?", "target": "ada", "schema": {"type": "object"}}
    asks = {"kind": "request", "payload": payload}
    script = [{"agent": "bob", "tick": 1, "reply": {"outbox_entries": [asks]}}, {"reply": say("hello")}]
    ada = resume("ada", schedule={"wake": "addressed"})
    base = make_org(tmp_path / "org", ada, resume("bob"), script=script)
    (tmp_path / "taken").mkdir()
    found = python(without("answers", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert "('ada', 'failed', 'the capability \"answers\" is not installed" in found.stdout
    assert not [*base.glob("agents/ada/outbox/*")]


def test_a_file_that_nobody_reads_is_told_of(tmp_path: Path) -> None:
    base = plain(tmp_path / "org")
    (base / "config/calendar.json").write_text("{}")
    (tmp_path / "taken").mkdir()
    found = python(without("calendars", tmp_path / "taken"), "-m", "lemming", "-C", str(base), "validate")
    assert found.returncode != 0
    assert "config/calendar.json" in found.stderr
    assert 'the capability "calendars" is not installed' in found.stderr


def test_an_engine_and_its_status_are_left_where_all_are_taken_out_and_a_command_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    here, there = plain(tmp_path / "here"), plain(tmp_path / "there")
    for _ in range(2):
        run_once(here, clock=FrozenClock())
    (tmp_path / "taken").mkdir()
    engine = without("", tmp_path / "taken")
    assert len(folders()) >= 14
    ran = python(engine, "-c", RUN, str(there))
    assert ran.returncode == 0, ran.stderr
    assert load_state_root(there) == load_state_root(here)
    assert python(engine, "-m", "lemming", "-C", str(there), "run-once", "--quiet").returncode == 0
    found = python(engine, "-m", "lemming", "-C", str(there), "status")
    assert found.returncode == 0, found.stderr
    assert "ada" in found.stdout
    refused = python(engine, "-m", "lemming", "-C", str(there), "ask", "ada", "how much?")
    assert refused.returncode != 0
    assert 'the capability "requests" is not installed: lemming.capabilities.requests is missing' in refused.stderr
    assert "internal error" not in refused.stderr


def test_a_run_that_is_to_send_batches_is_refused_before_it_begins(tmp_path: Path) -> None:
    base = plain(tmp_path / "org")
    (tmp_path / "taken").mkdir()
    place = without("batches", tmp_path / "taken")
    found = python(place, "-m", "lemming", "-C", str(base), "run-once", "--batch")
    assert found.returncode != 0
    assert 'the capability "batches" is not installed' in found.stderr
    assert not [*base.glob("logs/ticks/*")]


def test_a_tick_that_has_records_of_one_that_is_absent_does_not_go_on(tmp_path: Path) -> None:
    base = plain(tmp_path / "org")
    (base / "tick.json").write_text(json.dumps({"current_tick": 1}))
    at = "2026-01-01T00:00:00Z"
    items = [{"custom_id": "x", "agent": "ada", "call": 0}]
    with Journal(base, 1, epoch=1, durability="off") as journal:
        journal.append(TickStarted(at=at, tick=1, order=["ada", "bob"]))
        journal.append(BatchAnnounced(label="l", provider="openai", model="m", at=at, items=items))
    (tmp_path / "taken").mkdir()
    found = python(without("batches", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode != 0
    assert 'batch_announced: the capability "batches" is not installed' in found.stderr
    assert not [*base.glob("agents/*/outbox/*")]


def test_what_fetches_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    found = python(without("embedded", tmp_path / "taken"), "-m", "lemming", "models", "pull")
    assert found.returncode == 3
    assert 'the capability "embedded" is not installed' in found.stderr


def test_a_tool_whose_folder_is_absent_is_unknown_and_says_what_is_missing(tmp_path: Path) -> None:
    base = plain(tmp_path / "org", permissions=WRITES)
    (tmp_path / "taken").mkdir()
    found = python(without("toolbox", tmp_path / "taken"), "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert "('ada', 'done', '')" in found.stdout
    told = (base / "logs/engine.log").read_text()
    assert 'tool \\"file_write\\" does not exist (the capability \\"toolbox\\" is not installed' in told


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "provider"), [("hosted", "openai"), ("hosted", "vllm"), ("scripted", "replay")])
def test_a_model_whose_folder_is_absent_is_not_asked_and_its_agent_is_told(
    tmp_path: Path, name: str, provider: str
) -> None:
    agents = [resume("ada", model={"key": "far"}), resume("bob", model={"key": "program"})]
    models = {"far": {"provider": provider, "model": "m"}, "program": LINES["program"]}
    base = make_org(tmp_path / "org", *agents, models=models)
    (tmp_path / "taken").mkdir()
    place = without(name, tmp_path / "taken")
    found = python(place, "-c", RUN, str(base))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count(f'the capability "{name}" is not installed') == 1
    assert "'bob'" in found.stdout
    ran = python(place, "-m", "lemming", "-C", str(base), "run-once", "--quiet", "--trust")
    assert "internal error" not in ran.stderr
    assert f'"{name}" is not installed' in ran.stderr + ran.stdout


def test_the_servers_of_the_table_are_those_that_have_an_address() -> None:
    assert set(MODEL_SERVERS) == SERVERS.keys()


def test_each_capability_is_named_by_something() -> None:
    assert NAMES_IT.keys() | NAMED_BY_ALL.keys() == SHIPPED.keys() | {"toolbox"}
