"""What an agreement is bound to: code that has changed since does not run before somebody agrees again."""

from __future__ import annotations

import errno
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S
from refused import asked_with_each_look_refused
from terminal import Lemming, read_until, start

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.operations.permission_grants import has_fetched
from lemming.testing import FrozenClock, make_org, resume

TOOL = "from lemming.tools import tool\n\n@tool\ndef greet() -> str:\n    '''Greets.'''\n    return 'hello'\n"
LATER = {"run_every_n_ticks": 1000}


def trap(base: Path) -> str:
    """Return Python code that leaves a trace beside the organisation."""
    return f"open({str(base.parent / 'fired')!r}, 'a').close()\n"


def fired(base: Path) -> bool:
    return (base.parent / "fired").exists()


def with_a_tool_file(base: Path) -> Path:
    make_org(base, resume("ada", schedule=LATER), org={"tool_files": ["tools/*.py"]})
    fs.write_atomic(base, "tools/greet.py", TOOL.encode())
    fs.write_atomic(base, "tools/_help.py", b"WORD = 1\n")
    return base / "tools/greet.py"


def with_a_program(base: Path) -> Path:
    make_org(
        base,
        resume("ada", model={"key": "p"}, schedule=LATER),
        models={"p": {"provider": "cli", "options": {"command": [sys.executable, "scripts/answer.py"], "cwd": "."}}},
    )
    fs.write_atomic(base, "scripts/answer.py", b"print('{}')\n")
    return base / "scripts/answer.py"


def with_a_server(base: Path) -> Path:
    make_org(base, resume("ada", permissions={"tools": ["mcp.notes.*"]}, schedule=LATER))
    server = {"command": [sys.executable, "servers/notes.py"]}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"notes": server}}))
    fs.write_atomic(base, "servers/notes.py", b"import sys\n")
    return base / "servers/notes.py"


def with_a_command_for_failures(base: Path) -> Path:
    make_org(base, resume("ada", schedule=LATER), org={"on_failure": ["./tell.sh", "me"]})
    fs.write_atomic(base, "tell.sh", b"#!/bin/sh\n")
    return base / "tell.sh"


def with_a_plugin(base: Path) -> Path:
    make_org(base, resume("ada", schedule=LATER), org={"plugins": ["bound_plugin"]})
    fs.write_atomic(base, "bound_plugin/__init__.py", b"from bound_plugin import inner\n")
    fs.write_atomic(base, "bound_plugin/inner.py", b"")
    return base / "bound_plugin/inner.py"


def with_a_judge_at_a_gate(base: Path) -> Path:
    judged = {"at": "out", "then": "block", "by": {"command": [sys.executable, "scripts/judge.py"]}}
    make_org(base, resume("ada", schedule=LATER), org={"gates": [{**judged, "policy": "be kind"}]})
    fs.write_atomic(base, "scripts/judge.py", b"print('{}')\n")
    return base / "scripts/judge.py"


def with_a_judge_at_an_agents_gate(base: Path) -> Path:
    file = with_a_judge_at_a_gate(base)
    gates = json.loads((base / "config/org.json").read_text())
    fs.write_atomic(
        base, "agents/ada/resume.json", dump_pretty(resume("ada", schedule=LATER, gates=gates.pop("gates")))
    )
    fs.write_atomic(base, "config/org.json", dump_pretty(gates))
    return file


BUILT = [with_a_tool_file, with_a_program, with_a_server, with_a_command_for_failures, with_a_plugin]
BUILT += [with_a_judge_at_a_gate, with_a_judge_at_an_agents_gate]


@pytest.mark.sample(3)
@pytest.mark.parametrize("build", BUILT)
def test_a_changed_file_of_code_asks_again_and_names_it(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch, build: Callable[[Path], Path]
) -> None:
    file = build(base)
    monkeypatch.syspath_prepend(base)
    assert lemming("run-once").status == 2
    assert lemming("trust", "--yes").status == 0
    assert lemming("run-once").status == 0
    file.write_bytes(file.read_bytes() + f"\n# {trap(base)}".encode())
    refused = lemming("run-once", "--json")
    assert refused.status == 2
    name = str(file.relative_to(base))
    assert f"(changed since the permission was granted: {name})" in refused.objects[0]["message"]
    assert [it["changed"] for it in lemming("trust", "--json").objects if it["changed"]] == [[name]]
    assert lemming("trust", "--yes").status == 0
    assert lemming("run-once").status == 0


def test_a_file_beside_a_tool_that_it_may_import_is_bound_too(base: Path, lemming: Lemming) -> None:
    with_a_tool_file(base)
    assert lemming("trust", "--yes").status == 0
    (base / "tools/_help.py").write_text(trap(base))
    assert "tools/_help.py" in lemming("run-once").err
    (base / "tools/_help.py").unlink()
    (base / "tools/_other.py").write_text(trap(base))
    assert "tools/_help.py, tools/_other.py" in lemming("tools", "call", "greet").err
    assert not fired(base)


def test_a_tool_is_called_without_agreement_where_the_person_says_so(base: Path, lemming: Lemming) -> None:
    with_a_tool_file(base)
    ada = resume("ada", permissions={"tools": ["greet"]}, schedule=LATER)
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(ada))
    assert lemming("tools", "call", "greet", "--yes").status == 2
    ran = lemming("tools", "call", "greet", "--yes", "--trust")
    assert (ran.status, "hello" in ran.out) == (0, True)
    assert lemming("tools", "call", "greet", "--yes").status == 2


def test_commands_that_read_the_same_are_not_the_same(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule=LATER), org={"on_failure": ["sh", "-c", "true x"]})
    assert lemming("trust", "--yes").status == 0
    fs.write_atomic(base, "config/org.json", dump_pretty({"on_failure": ["sh", "-c", "true", "x"]}))
    assert "changed since the permission was granted: config/org.json on_failure" in lemming("run-once").err


def test_a_servers_variables_are_bound(base: Path, lemming: Lemming) -> None:
    with_a_server(base)
    assert lemming("trust", "--yes").status == 0
    server = {"command": [sys.executable, "servers/notes.py"], "variables": {"PYTHONPATH": "/elsewhere"}}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"notes": server}}))
    assert "changed since the permission was granted: config/mcp.json notes" in lemming("run-once").err


@pytest.mark.parametrize("words", [["test"], ["accept", "--yes"]])
def test_a_server_that_only_a_person_asks_for_waits_too(base: Path, lemming: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"))
    server = {"command": ["touch", str(base.parent / "fired")], "start_timeout_s": 1}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"notes": server}}))
    assert lemming("run-once").status == 0  # nobody uses it
    assert lemming("mcp", *words).status == 2
    assert not fired(base)


def test_bytecode_that_python_never_checks_is_bound_and_its_own_is_not(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    import py_compile

    file = with_a_plugin(base)
    monkeypatch.syspath_prepend(base)
    assert lemming("trust", "--yes").status == 0
    py_compile.compile(str(file))
    assert lemming("run-once").status == 0
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    compiled = Path(importlib.util.cache_from_source(str(file))).relative_to(base)
    assert str(compiled) in lemming("run-once").err


@pytest.mark.long
def test_code_that_changes_while_an_engine_runs_is_not_loaded(base: Path, lemming: Lemming) -> None:
    file = with_a_tool_file(base)
    assert lemming("trust", "--yes").status == 0
    with start("-C", str(base), "run-forever", "--interval", "0.05", "--max-ticks", "2000") as engine:
        read_until(engine.stderr, "tick 1")
        file.write_text(trap(base) + TOOL)
        assert engine.wait(PATIENCE_S) == 2
        assert engine.stderr is not None
        assert "tools/greet.py" in engine.stderr.read()
    assert not fired(base)


def test_a_command_that_tells_of_failures_is_not_run_for_the_refusal_of_itself(base: Path) -> None:
    make_org(base, resume("ada", schedule=LATER))
    with start("-C", str(base), "run-forever", "--interval", "0.05", "--max-ticks", "2000") as engine:
        read_until(engine.stderr, "tick 1")
        fs.write_atomic(base, "config/org.json", dump_pretty({"on_failure": ["touch", str(base.parent / "fired")]}))
        assert engine.wait(PATIENCE_S) == 2
    assert not fired(base)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.mark.long
def test_our_own_code_is_free_of_questions_until_git_has_fetched(base: Path, lemming: Lemming, bare: Lemming) -> None:
    assert bare("init", str(base), "--template", "empty").status == 0
    fs.write_atomic(base, "config/org.json", dump_pretty({"tool_files": ["tools/*.py"]}))
    fs.write_atomic(base, "tools/greet.py", TOOL.encode())
    assert lemming("run-once").status == 0
    fs.write_atomic(base, "tools/greet.py", TOOL.replace("hello", "hallo").encode())
    assert lemming("run-once").status == 0
    git(base, "init", "-q")
    git(base, "add", "tools", "config")
    git(base, "commit", "-qm", "ours")
    assert lemming("run-once").status == 0
    git(base.parent, "clone", "-q", str(base), "theirs")
    (base.parent / "theirs/tools/greet.py").write_text(trap(base) + TOOL)
    git(base.parent / "theirs", "commit", "-qam", "theirs")
    git(base, "fetch", "-q", str(base.parent / "theirs"), "HEAD")
    assert lemming("run-once").status == 0  # what has come is not used yet
    git(base, "merge", "-q", "FETCH_HEAD")
    refused = lemming("run-once")
    assert refused.status == 2
    assert "changed since the permission was granted: tools/greet.py" in refused.err
    lemming("plan")
    lemming("tools", "list")
    assert not fired(base)
    assert lemming("trust", "--yes").status == 0
    assert lemming("run-once").status == 0
    assert fired(base)


def test_a_repository_is_found_where_git_would_find_it(tmp_path: Path) -> None:
    org, elsewhere = tmp_path / "one/org", tmp_path / "elsewhere"
    org.mkdir(parents=True)
    git(tmp_path, "init", "-q", "one")
    assert not has_fetched(org)
    (tmp_path / "one/.git/FETCH_HEAD").touch()
    assert has_fetched(org)
    git(tmp_path / "one", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "one", "worktree", "add", "-q", str(elsewhere))
    assert has_fetched(elsewhere)
    linked = tmp_path / "linked"
    linked.symlink_to("one/org")
    for number in (errno.EIO, errno.EMFILE):
        for folder in (org, elsewhere, linked):
            assert asked_with_each_look_refused(tmp_path, number, partial(has_fetched, folder))
    (tmp_path / "one/.git/FETCH_HEAD").unlink()
    assert not has_fetched(elsewhere)


def test_a_program_that_embeds_the_engine_decides_for_itself(base: Path) -> None:
    with_a_tool_file(base)
    assert run_once(base, clock=FrozenClock()).is_complete


def test_a_replay_in_another_folder_loads_the_code_that_a_person_agreed_to(base: Path, lemming: Lemming) -> None:
    with_a_tool_file(base)
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(resume("ada", permissions={"tools": ["greet"]})))
    refused, agreed = base.parent / "refused", base.parent / "agreed"
    assert lemming("run-once", "--trust").status == 0
    assert lemming("replay", "--into", str(refused)).status == 2
    assert lemming("trust", "--yes").status == 0
    replayed = lemming("replay", "--into", str(agreed))
    assert replayed.status == 0, replayed.err
