"""Each capability can be taken out: its folder deleted, the rest works; who uses it is refused in words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from package import PACKAGE

from lemming.capabilities.batches.batch_records import BatchAnnounced
from lemming.engine import run_once
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import TickStarted
from lemming.kernel.plugins.built_in_capabilities import MODEL_SERVERS
from lemming.kernel.plugins.capability_table import COMMANDS, LISTED, SHIPPED
from lemming.libraries.compatible_servers import SERVERS
from lemming.testing import FrozenClock, make_org, resume, say

TESTS = PACKAGE.parent / "tests"
CAPABILITIES = PACKAGE / "capabilities"
GUIDE = ("test_guide.py", "test_guide_formats.py", "test_guide_providers.py")
KERNEL = ("engine", "values")
CORPUS = "engine/test_corpus_at_once.py"
"""What runs organisations that use everything there is."""
WRITES = {"tools": ["file_write"]}
NAMES_IT: dict[str, list[dict[str, Any]]] = {
    "answers": [{"output": {"schema": {"properties": {"price": {"type": "number"}}}}}],
    "approvals": [
        {"gates": [{"at": "call", "tool": "file_write", "then": "ask"}], "permissions": WRITES},
        {"gates": [{"at": "out", "then": "ask"}]},
        {"gates": [{"at": "spend", "credits": 1, "per": "turn", "then": "ask"}]},
        {"turn": {"max_approvals": 2}},
    ],
    "attachments": [{"permissions": {"tools": ["attach"]}}, {"model": {"key": "eye"}}],
    "embedded": [{"model": {"key": "default"}}],
    "gates": [
        {"gates": [{"at": "out", "deny": ["secret"], "then": "block"}]},
        {"gates": [{"at": "spend", "calls": 5, "per": "turn", "then": "block"}]},
        {"gates": []},
    ],
    "judges": [
        {"verify": {"by": "bob"}},
        {"team": {"ask": [{"agent": "bob", "verify": {"by": "bob"}}]}},
        {"gates": [{"at": "out", "by": "bob", "then": "block"}]},
    ],
    "money": [{"model": {"key": "dear"}}, {"model": {"key": "scripted", "fallback": ["dear"]}}],
    "mcp": [{"permissions": {"tools": ["mcp.files.*"]}}, {"permissions": {"tools": ["mcp.files.read"]}}],
    "calendars": [{"model": {"key": "clock"}}],
    "batches": [{"model": {"key": "batchy"}}],
    "cron": [{"schedule": {"cron": "@hourly", "timezone": "UTC"}}],
    "channels": [{"model": {"key": "box"}}],
    "plans": [{"model": {"key": "plan"}}],
    "programs": [{"model": {"key": "program"}}],
    "requests": [{"team": {"ask": ["bob"]}}, {"turn": {"take": "one"}}],
    "skills": [{"skills": ["*"]}, {"guides": True}],
    "strategies": [{"turn": {"strategy": "reflexion"}}, {"turn": {"options": {"rounds": 2}}}],
    "windows": [{"memory": {"max_tokens": 100}}],
}
"""What a resume says that uses a capability."""
NAMED_BY_ALL: dict[str, dict[str, Any]] = {
    "cluster": {"executor": "dask", "executor_address": "tcp://127.0.0.1:8786"},
    "gates": {"gates": [{"at": "call", "class": "execute", "then": "block"}]},
    "toolbox": {"shell": {"timeout_s": 5}},
    "trust": {"trust": {}},
}
"""What `config/org.json` says that uses one."""

PEOPLE = {"human": {"provider": "human"}}
LINES: dict[str, dict[str, Any]] = {
    "box": {"provider": "folder", "options": {"path": "./shared/box", "to": "bob"}},
    "batchy": {"provider": "scripted", "options": {"file": "script.json"}, "batch_deadline_s": 60},
    "dear": {"provider": "scripted", "options": {"file": "script.json"}, "usd_per_million_input_tokens": 1},
    "eye": {"provider": "scripted", "options": {"file": "script.json"}, "images": True},
    "program": {"provider": "cli", "options": {"command": ["cat"]}},
}
"""Lines of `config/models.json` for one who uses a capability."""
PROGRAMS = {name: {"provider": name, "prompt": "values"} for name in ("clock", "plan")}

RUN = """
import sys
from lemming.engine import run_once
from lemming.testing import FrozenClock
for base in sys.argv[1:]:
    for _ in range(2):
        report = run_once(base, clock=FrozenClock())
    print([(turn.agent, turn.status, turn.reason) for turn in report.turns])
"""


def without(name: str, place: Path) -> Path:
    """Return a folder with the package in it, all of it but the folder of a capability; "": but of any."""
    inner = Path("lemming", CAPABILITIES.name)
    (place / inner).mkdir(parents=True)
    gone = {LISTED[name].package.rpartition(".")[2]} if name else {it.name for it in folders()}
    left_out = {"__pycache__", CAPABILITIES.name, *gone}
    for folder, here in ((inner.parent, PACKAGE), (inner, CAPABILITIES)):
        for path in here.iterdir():
            if path.name not in left_out:
                (place / folder / path.name).symlink_to(path)
    return place


def folders() -> list[Path]:
    """Return the folders of all capabilities, but for the tools and models that the guide names."""
    stay = {"__pycache__", "hosted_models", "scripted_models", "toolbox"}
    return [it for it in CAPABILITIES.iterdir() if it.is_dir() and it.name not in stay]


def python(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of this folder."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def pytest_in(place: Path, *paths: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the package of this folder."""
    folders = [TESTS, *(it for it in TESTS.iterdir() if it.is_dir() and it.name != "__pycache__")]
    where = f"pythonpath={' '.join(map(str, [place, PACKAGE.parent, *folders]))}"
    files = [path if path.startswith("-") else str(TESTS / path) for path in paths]
    return python(place, "-m", "pytest", "-c", str(PACKAGE.parent / "pyproject.toml"), "-o", where, *files)


def plain(base: Path, **ada: Any) -> Path:
    """Return an organisation of two, of whom one may use a capability."""
    script = [{"reply": say("hello", memory_updates=[{"key": "seen", "value": 1}])}]
    named = str(ada.get("model", ""))
    models = PROGRAMS | {key: line for key, line in LINES.items() if f"'{key}'" in named}
    return make_org(base, resume("ada", **ada), resume("bob"), models=models, script=script)


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


@pytest.fixture(scope="module")
def plain_org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation of two agents and a person that has run two ticks and uses no capability."""
    reads = {"read_outboxes": ["*"]}
    agents = [resume(name, permissions=reads) for name in ("ada", "bob")]
    human = resume("human", model={"key": "human"}, permissions=reads)
    script = [{"reply": say("hello", memory_updates=[{"key": "seen", "value": 1}])}]
    base = make_org(tmp_path_factory.mktemp("plain") / "org", *agents, human, models=PEOPLE, script=script)
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return base


def needed_by(name: str) -> set[str]:
    """Return the capability and all that need it; "": all that may be absent."""
    users, found = {name} if name else {*SHIPPED}, set[str]()
    while users:
        found |= users
        users = {it for it, spec in LISTED.items() if found.intersection(spec.needs)} - found
    return found


SAMPLE = ("", "gates", "requests")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.long) for name in ("", *LISTED)],
)
def test_each_command_and_view_is_there_without_it(tmp_path: Path, plain_org: Path, name: str) -> None:
    """A command of what is absent says so; all others, the page and each help text are as ever."""
    base, place = Path(shutil.copytree(plain_org, tmp_path / "org")), without(name, tmp_path / "taken")
    ran = python(place, str(TESTS / "command_matrix.py"), str(base))
    assert ran.returncode == 0, ran.stderr
    results: dict[str, tuple[int, str]] = json.loads(ran.stdout)
    absent = needed_by(name)
    its_own = {command for command, (owner, _) in COMMANDS.items() if owner in absent}
    assert its_own <= {it.partition(" ")[0] for it in results}
    asks_a_model = name == "scripted"
    for command, (status, text) in results.items():
        if command.partition(" ")[0] in its_own:
            assert (status, '" is not installed: ' in text) == (2, True), (command, text)
        elif asks_a_model and status:
            assert f'"{name}" is not installed' in text, (command, text)
        else:
            assert (status, text if status else "") == (0, ""), (command, text)


@pytest.mark.long
@pytest.mark.parametrize("name", dict.fromkeys((*NAMES_IT, *NAMED_BY_ALL)))
def test_the_screens_of_an_organisation_that_uses_it_say_what_is_missing(tmp_path: Path, name: str) -> None:
    base = plain(tmp_path / "org", **NAMES_IT.get(name, [{}])[0])
    theirs = base / "agents/ada/resume.json"
    uses_it, without_it = theirs.read_text(), (base / "agents/bob/resume.json").read_text()
    theirs.write_text(without_it.replace('"bob"', '"ada"'))
    run_once(base, clock=FrozenClock())
    theirs.write_text(uses_it)
    if name in NAMED_BY_ALL:
        (base / "config/org.json").write_text(json.dumps(NAMED_BY_ALL[name]))
    ran = python(without(name, tmp_path / "taken"), str(TESTS / "command_matrix.py"), str(base))
    assert ran.returncode == 0, ran.stderr
    results: dict[str, tuple[int, str]] = json.loads(ran.stdout)
    assert f'"{name}" is not installed' in results["validate"][1]
    broken = {it: text for it, (_, text) in results.items() if "internal error" in text or "Traceback" in text}
    assert broken == {}
    assert results["page /"][0] == 0


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
