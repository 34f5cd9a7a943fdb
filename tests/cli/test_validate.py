"""`validate` finds what would otherwise show at run time, and points at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry, entry_id
from lemming.queries.checks.check_registry import compute_entries_per_outbox
from lemming.testing import make_org, resume

PERMISSIONS = "/permissions"
FILES = "/permissions/file_access"


def permissions(**blocks: Any) -> dict[str, Any]:
    """Return the block of a resume that grants these."""
    return {"permissions": blocks}


def file_access(**folders: list[str]) -> dict[str, Any]:
    """Return the block of a resume that grants these folders."""
    return permissions(file_access=folders)


MISTAKES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"model": {"key": "scriptd"}}, "error", "/model/key", 'did you mean "scripted"?'),
    (permissions(tools=["shel"]), "error", f"{PERMISSIONS}/tools/0", 'did you mean "shell"?'),
    (permissions(tools=["create_agent"]), "warning", f"{PERMISSIONS}/tools/0", "create_agent_allowed"),
    (permissions(read_outboxes=["bbo"]), "warning", f"{PERMISSIONS}/read_outboxes/0", 'did you mean "bob"?'),
    (permissions(read_outboxes=["ada"]), "warning", f"{PERMISSIONS}/read_outboxes/0", "own latest entries"),
    (file_access(allow_read=["./workspace", "../x"]), "error", f"{FILES}/allow_read/1", "use ./workspace"),
    (file_access(allow_write=["data"]), "error", f"{FILES}/allow_write/0", "use ./workspace"),
    (file_access(allow_read=["/no/such/folder"]), "warning", f"{FILES}/allow_read/0", "make it"),
    ({"context": [{"file": "./workspace/gone.txt"}]}, "error", "/context/0/file", "put a file there"),
    ({"schedule": {"wake": "sometimes"}}, "error", "/schedule/wake", ""),
    ({"gates": [{"at": "call", "then": "ask", "class": "wriet"}]}, "error", "/gates/0/class", 'did you mean "write"?'),
    ({"shedule": {}}, "error", "/shedule", 'did you mean "schedule"?'),
    ({"tools": ["shell"]}, "error", "/tools", "move it to permissions.tools"),
    ({"read_outboxes": ["bob"]}, "error", "/read_outboxes", "move it to permissions.read_outboxes"),
    ({"max_credits": 5}, "error", "/max_credits", "move it to credits.max_credits"),
    ({"run_every_n_ticks": 5}, "error", "/run_every_n_ticks", "move it to schedule.run_every_n_ticks"),
    ({"temperature": 1}, "error", "/temperature", "move it to model.temperature"),
    ({"allow_read": []}, "error", "/allow_read", "move it to permissions.file_access.allow_read"),
    ({"schedule": {"soft_cap": 5}}, "error", "/schedule/soft_cap", "move it to credits.soft_cap"),
    ({"schedule": {"title": "x"}}, "error", "/schedule/title", "move it to the top level"),
    ({"colour": "red"}, "warning", "/colour", "known keys: name"),
    ({"model": "scripted"}, "error", "/model", 'write {"key":"scripted"}'),
    ({"schedule": 5}, "error", "/schedule", 'write {"run_every_n_ticks":5}'),
    (permissions(tools="shell"), "error", f"{PERMISSIONS}/tools", 'write ["shell"]'),
    ({"permissions": ["shell"]}, "error", PERMISSIONS, "its keys: read_outboxes, tools, file_access"),
    ({"schedule": {"phase_offset": "3"}}, "error", "/schedule/phase_offset", "write 3"),
    ({"schedule": {"wake": "chnaged"}}, "error", "/schedule/wake", 'did you mean "changed"?'),
    ({"title": 7}, "error", "/title", 'write "7"'),
    ({"instructions": ["Be", "brief"]}, "error", "/instructions", 'write "Be\\nbrief"'),
]


@pytest.mark.parametrize(("blocks", "severity", "pointer", "hint"), MISTAKES)
def test_a_mistake_in_a_resume_is_found_at_its_place(
    base: Path, lemming: Lemming, blocks: dict[str, Any], severity: str, pointer: str, hint: str
) -> None:
    make_org(base, resume("ada", **blocks), resume("bob"))
    ran = lemming("validate", "--json")
    (problem,) = ran.objects
    assert (problem["severity"], problem["pointer"]) == (severity, pointer)
    assert problem["file"] == "agents/ada/resume.json"
    assert problem["line"] > 0
    assert hint in problem["hint"]
    assert ran.status == (3 if severity == "error" else 0)


def test_a_mistake_in_the_settings_says_what_to_write(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    settings = b'{"max_parallel": "8", "create_agent_allowed": "ada", "max_steps": 2, "history": "gti"}'
    fs.write_atomic(base, "config/org.json", settings)
    fs.write_atomic(base, "config/credits.json", b'{"ada": 5}')
    fixes = {problem["pointer"]: problem["hint"] for problem in lemming("validate", "--json").objects}
    assert fixes == {
        "/max_parallel": "write 8",
        "/create_agent_allowed": 'write ["ada"]',
        "/max_steps": "move it to defaults.turn.max_steps",
        "/history": 'did you mean "git"?',
        "/ada": 'write {"max_credits":5}',
    }


def test_mistakes_outside_resumes_are_found(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada"),
        models={"gpt": {"provider": "opnai"}, "old": {"provider": "openai", "options": {"base_ulr": "x"}}},
    )
    fs.write_atomic(base, "config/credits.json", b'{"adda": {"max_credits": 3}}')
    fs.write_atomic(base, "agents/ada/outbox/notes.txt", b"hello")
    fs.write_atomic(base, "agents/ada/memory/goal.json", b"{")
    ran = lemming("validate", "--json")
    assert {problem["file"]: problem["severity"] for problem in ran.objects} == {
        "config/models.json": "error",
        "config/credits.json": "error",
        "agents/ada/outbox/notes.txt": "error",
        "agents/ada/memory/goal.json": "error",
    }
    assert sum(problem["file"] == "config/models.json" for problem in ran.objects) == 2
    assert ran.status == 3


def test_a_settings_file_whose_name_is_a_typo_is_warned_of(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/orgs.json", b"{}")
    fs.write_atomic(base, "config/notes.json", b"{}")
    (problem,) = lemming("validate", "--json").objects
    assert (problem["severity"], problem["file"]) == ("warning", "config/orgs.json")
    assert problem["hint"] == "rename it to config/org.json, or remove it"


def test_broken_settings_do_not_hide_broken_resumes(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule="daily"))
    fs.write_atomic(base, "config/org.json", b'{"inbox_limit": -1}')
    files = [problem["file"] for problem in lemming("validate", "--json").objects]
    assert files == ["config/org.json", "agents/ada/resume.json"]


def test_one_agent_can_be_checked_alone(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", schedule="daily"))
    assert lemming("validate", "ada").status == 0
    assert lemming("validate", "bob").status == 3


def test_a_clean_org_is_said_to_be_in_order(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("validate")
    assert (ran.status, ran.out, ran.err) == (0, "", "no problems\nnext: `lemming run-once`\n")


def test_a_broken_tick_counter_is_found(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    for wrong in (b'{"current_tick": "x"}', b'{"current_tick": 1', b'{"tick": 1}', b"3"):
        fs.write_atomic(base, "tick.json", wrong)
        ran = lemming("validate", "--json")
        (problem,) = ran.objects
        assert (ran.status, problem["file"], problem["code"]) == (3, "tick.json", "LMG-101")
        assert '{"current_tick": 1}' in problem["hint"]


def test_a_counter_that_the_engine_refuses_is_found(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("run-once")
    lemming("run-once")
    (base / "tick.json").write_text('{"current_tick": 1}')
    problem = next(found for found in lemming("validate", "--json").objects if found["severity"] == "error")
    assert problem["message"] == "tick 1 is over: tick 2 has started"
    assert problem["hint"] == 'write {"current_tick": 3} into the file to continue'


def test_a_wrong_option_of_a_model_is_found_at_its_place(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), models={"ours": {"provider": "cli", "options": {"command": "claude -p"}}})
    (problem,) = lemming("validate", "--json").objects
    assert problem["pointer"] == "/ours/options/command"
    assert problem["message"].endswith('option "command": expected a list, got "claude -p"')


def test_an_ignored_entry_is_reported_by_a_run_with_its_place(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", model={"key": "human"}), models={"human": {"provider": "human"}})
    entry = (
        b'{"id": "abc", "tick": 1, "agent": "bob", "kind": "message", "tags": [], "created_at": "x",\n "payload": "hi"}'
    )
    fs.write_atomic(base, "agents/bob/outbox/00000001_abc.json", entry)
    assert "00000001_abc.json:2:2 /payload: expected an object, got text" in lemming("run-once").err


def test_what_an_empty_resume_lacks_is_one_error(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("bob"))
    fs.write_atomic(base, "agents/ada/resume.json", b"{}")
    (problem,) = lemming("validate", "--json").objects
    assert problem["message"] == 'these keys are required: "name" and "instructions"'
    assert (problem["pointer"], problem["line"]) == ("", 1)


def test_a_folder_that_is_not_understood_takes_the_agent_out_and_names_itself(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", **file_access(allow_read=["./workspace", "~/notes"], allow_write=["data"])))
    first, second = lemming("validate", "--json").objects
    assert first["message"].startswith('"~/notes" grants nothing: ')
    assert second["message"].startswith('"data" grants nothing: ')
    assert {first["severity"], second["severity"]} == {"error"}


def test_a_key_over_plain_http_to_another_machine_is_warned_about(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "for-ollama-only")
    monkeypatch.setenv("OLLAMA_HOST", "http://gpu")
    key = {"api_key_env": "FAR_KEY"}
    options = {
        "far": ("openai", {"base_url": "http://far.example/v1", **key}),
        "password": ("anthropic", {"base_url": "http://me:hunter2@10.0.0.9"}),
        "box": ("ollama", {"host": "box:11434"}),
        "usual": ("ollama", {}),
        "safe": ("openai", {"base_url": "https://far.example/v1", **key}),
        "no-key": ("openai", {"base_url": "http://far.example/v1"}),
        "here": ("openai", {"base_url": "http://[::1]:8000/v1", **key}),
        "local": ("ollama", {"host": "127.0.0.1"}),
    }
    models = {name: {"provider": provider, "model": "m", "options": o} for name, (provider, o) in options.items()}
    make_org(base, resume("ada", model={"key": "far"}), models=models)
    ran = lemming("validate", "--json")
    told = {line["pointer"].split("/")[1]: line["message"] for line in ran.objects}
    assert ran.status == 0
    assert told.keys() == {"far", "password", "box", "usual"}
    assert "the key in FAR_KEY is sent over plain http" in told["far"]
    assert "hunter2" not in str(told)
    assert "4 warnings" in lemming("doctor").out


def test_a_folder_without_a_resume_is_a_warning(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    (base / "agents/bob/workspace").mkdir(parents=True)
    ran = lemming("validate", "--json")
    (problem,) = ran.objects
    assert (ran.status, problem["severity"], problem["file"]) == (0, "warning", "agents/bob/resume.json")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"name": "ada" "instructions": "x"}', "missing comma"),
        ("{'name': 'ada'}", "straight double quotes"),
        ('{"name": \u201cada\u201d}', "straight double quotes"),
        ('{"name": "ada", "x": True}', "true, false and null"),
        ('{"name": "a\nb"}', "write \\n"),
        ('{"name": "ada"', "close the quote"),
        ("", "the file is empty"),
    ],
)
def test_what_is_no_json_is_told_what_json_wants(base: Path, lemming: Lemming, text: str, hint: str) -> None:
    make_org(base, resume("bob"))
    fs.write_atomic(base, "agents/ada/resume.json", text.encode())
    (problem,) = lemming("validate", "--json").objects
    assert (problem["code"], problem["severity"]) == ("LMG-303", "error")
    assert hint in problem["hint"]


@pytest.mark.long
def test_tools_of_a_model_that_is_too_small_for_them_are_warned_about(base: Path, lemming: Lemming) -> None:
    tiny = {"provider": "local", "model": "smollm2-135m-instruct", "prompt": "brief"}
    agents = [resume(name, model={"key": key}, **permissions(tools=["file_read"]))
              for name, key in (("ada", "tiny"), ("bob", "scripted"))]  # fmt: skip
    make_org(base, *agents, models={"tiny": tiny})
    assert "too small to call tools: file_read" in lemming("prompt", "ada").err
    assert "too small" not in lemming("prompt", "bob").err


def test_what_a_plugin_that_was_not_imported_may_bring_is_no_mistake(base: Path, lemming: Lemming) -> None:
    own = {"provider": "own_provider"}
    agent = resume("ada", model={"key": "own"}, **permissions(tools=["own_tool"]))
    make_org(base, agent, models={"own": own}, org={"plugins": ["a_plugin_nobody_has"]})
    ran = lemming("validate")
    assert ran.status == 0
    assert "not imported: a_plugin_nobody_has" in ran.err
    fs.write_atomic(base, "config/org.json", b"{}")
    told = lemming("validate", "--json").out
    assert 'provider \\"own_provider\\" does not exist' in told
    assert 'no tool \\"own_tool\\"' in told


@pytest.mark.long
def test_of_very_many_entries_the_newest_are_opened_and_all_when_asked(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    for tick in range(compute_entries_per_outbox(1) + 1):
        entry = OutboxEntry(entry_id(tick, "ada", 0), tick, "ada", "message", {}, [], "2026-01-01T00:00:00Z")
        fs.write_atomic(base, entry.file, b"{}" if tick == 0 else entry.content)
    ran = lemming("validate")
    assert "not checked: 1 older entry (all but the newest 3000 of each outbox); --all checks them" in ran.err
    every = lemming("validate", "--all", "--json")
    oldest = paths.entry_file("ada", 0, entry_id(0, "ada", 0))
    assert every.status == 3
    assert {problem["file"] for problem in every.objects} == {oldest}


def test_an_agent_called_all_is_warned_of_with_what_to_do(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("human", model={"key": "human"}), resume("all"))
    ran = lemming("validate")
    assert ran.status == 0
    assert '"all" must not be an agent\'s name' in ran.err + ran.out
    assert "`lemming agents rename`" in ran.err + ran.out


def test_an_agent_called_all_is_not_asked_in_vain(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("human", model={"key": "human"}), resume("all"))
    ran = lemming("ask", "all", "hello?")
    assert ran.status == 2
    assert "it means all agents" in ran.err


# --- tools that are in files -----------------------------------------------------------------------

WITH_A_TOOL = 'from lemming.tools import tool\n\n\n@tool\ndef feed(url: str) -> str:\n    """Read."""\n    return url\n'


def with_a_file(base: Path, *patterns: str) -> Path:
    make_org(base, resume("ada", permissions={"tools": ["feed"]}), org={"tool_files": list(patterns)})
    (base / "tools").mkdir()
    (base / "tools/feed.py").write_text(WITH_A_TOOL)
    return base


def test_a_tool_of_a_file_that_nobody_agreed_to_is_said_to_be_there_and_not_loaded(
    base: Path, lemming: Lemming
) -> None:
    with_a_file(base, "tools/*.py")
    ran = lemming("validate")
    assert ran.status == 0
    told = 'tool "feed" is in tools/feed.py, which is not loaded: the workspace is not trusted'
    assert told in ran.out + ran.err
    assert "did you mean" not in ran.out + ran.err


def test_a_tool_of_a_file_that_no_pattern_names_is_an_error_that_names_the_file(base: Path, lemming: Lemming) -> None:
    with_a_file(base)
    ran = lemming("validate")
    assert ran.status == 3
    assert 'tool "feed" is in tools/feed.py, which no pattern in tool_files matches' in ran.out + ran.err
    assert 'add "tools/*.py" to tool_files in config/org.json' in ran.out + ran.err


def test_a_file_with_a_tool_that_no_pattern_names_is_mentioned(base: Path, lemming: Lemming) -> None:
    with_a_file(base, "tools/none.py")
    ran = lemming("validate")
    assert "tools/feed.py: no pattern in tool_files matches the file, so it is not loaded" in ran.out + ran.err


def test_a_script_in_a_folder_called_tools_is_not_mentioned(base: Path, lemming: Lemming) -> None:
    with_a_file(base)
    (base / "tools/feed.py").write_text("print('a script of the project')\n")
    ran = lemming("validate")
    assert "the file is not loaded" not in ran.out + ran.err


def test_a_judge_that_takes_turns_beside_judging_is_warned_of_where_it_is_named(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", verify={"by": "critic"}), resume("critic", permissions={"read_outboxes": []}))
    ran = lemming("validate")
    assert "critic is a judge and also takes turns" in ran.out + ran.err
    assert "/verify/by" in ran.out + ran.err


@pytest.mark.parametrize(
    ("blocks", "is_told"),
    [
        ({"turn": {"max_steps": 1}}, True),
        ({}, True),  # recorded replies are whole contracts
        ({"turn": {"max_steps": 2}}, False),
        ({"permissions": {"read_outboxes": [], "tools": ["file_write"]}}, False),  # that it wrote is no news
        ({"schedule": {"run_every_n_ticks": 1, "phase_offset": 0}}, False),
    ],
)
def test_a_rare_agent_that_reads_its_results_in_its_next_turn_is_told_of(
    base: Path, lemming: Lemming, blocks: dict[str, Any], is_told: bool
) -> None:
    rare = {"schedule": {"cron": "0 9 * * mon", "timezone": "UTC"}}
    reads = {"permissions": {"read_outboxes": [], "tools": ["file_read"]}}
    make_org(base, resume("ada", **{**rare, **reads, **blocks}))
    told = "a turn makes one model call, so the results of file_read are read in the next turn, by '0 9 * * mon'"
    assert (told in lemming("validate").err) == is_told
