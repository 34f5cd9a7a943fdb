"""Harnesses are files: command lines, variables and files of HOME are built from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemming.capabilities.workers.harnesses.harness_table import (
    build_invocation,
    can_ask,
    find_program,
    list_harnesses,
    load_harness,
    read_version,
    with_command,
)
from lemming.kernel.base.errors import ConfigError

VALUES = {"model": "m1", "base_url": "http://127.0.0.1:9"}
MARKS = ("{model}", "{session}", "{base_url}", "{key_variable}", "{max_cost_usd}", "{max_turns}", "{resume}")


def make_table(folder: Path, **keys: object) -> Path:
    (folder / "tool.json").write_text(json.dumps(keys))
    return folder


@pytest.mark.parametrize("name", list_harnesses())
def test_a_run_of_each_harness_has_no_unfilled_mark(name: str) -> None:
    harness = load_harness(name)
    session = "s1" if harness.resume else ""
    words = build_invocation(harness, session=session, max_cost_usd=0.5, max_turns=4, **VALUES).command
    words += build_invocation(harness, **VALUES).environment.values()
    words += build_invocation(harness, **VALUES).home_files.values()
    assert [word for word in words if any(mark in word for mark in (*MARKS, "{permissions}", "{limits}"))] == []


@pytest.mark.parametrize("name", list_harnesses())
def test_files_of_home_are_valid_in_their_format(name: str) -> None:
    harness = load_harness(name)
    model = 'odd"name\\'
    texts = build_invocation(harness, model=model, base_url="http://x").home_files
    for text in [text for path, text in texts.items() if path.endswith(".json")]:
        assert json.loads(text)


def test_a_session_is_resumed_by_the_words_of_the_file() -> None:
    command = build_invocation(load_harness("codex"), session="s1", **VALUES).command
    assert command[:5] == ["codex", "exec", "resume", "s1", "--json"]


def test_a_first_run_has_no_words_of_a_session() -> None:
    assert "--resume" not in build_invocation(load_harness("claude-code"), **VALUES).command


def test_limits_that_a_harness_has_options_for_are_in_its_command() -> None:
    command = build_invocation(load_harness("claude-code"), max_cost_usd=0.25, max_turns=3, **VALUES).command
    assert command[-4:] == ["--max-budget-usd", "0.25", "--max-turns", "3"]


def test_limits_without_an_option_are_left_to_the_engine() -> None:
    harness = load_harness("pi")
    assert build_invocation(harness, max_turns=3, **VALUES).command == build_invocation(harness, **VALUES).command


def test_a_harness_in_a_private_clone_asks_nothing_unless_told_so() -> None:
    harness = load_harness("claude-code")
    assert "--dangerously-skip-permissions" in build_invocation(harness, **VALUES).command
    asking = build_invocation(harness, permissions="ask", **VALUES).command
    assert "--dangerously-skip-permissions" not in asking
    assert asking[asking.index("--permission-prompt-tool") + 1] == "stdio"


def test_a_harness_that_never_asks_cannot_be_told_to() -> None:
    assert not can_ask(load_harness("codex"))
    with pytest.raises(ConfigError, match="never asks") as caught:
        build_invocation(load_harness("codex"), permissions="ask", **VALUES)
    assert 'must be "bypass", got "ask"' in caught.value.message


def test_a_harness_that_cannot_resume_says_so() -> None:
    with pytest.raises(ConfigError, match="cannot resume a session"):
        build_invocation(with_command(load_harness("command"), ["tool"]), session="s1", **VALUES)


def test_a_command_of_the_entry_replaces_the_program() -> None:
    harness = with_command(load_harness("command"), ["mytool", "--fast"])
    assert build_invocation(harness, **VALUES).command == ["mytool", "--fast"]
    assert harness.output == "text"


def test_a_known_program_by_acp_brings_its_environment() -> None:
    harness = with_command(load_harness("acp"), ["/opt/bin/gemini", "--acp"])
    assert build_invocation(harness, **VALUES).command == ["/opt/bin/gemini", "--acp"]
    assert (harness.name, harness.output, harness.api) == ("acp", "acp", "gemini")
    assert build_invocation(harness, **VALUES).environment["GOOGLE_GEMINI_BASE_URL"] == VALUES["base_url"]


@pytest.mark.parametrize("command", [[], [""], ["tools/mine"]])
def test_a_command_must_name_a_program_that_is_found_from_anywhere(command: list[str]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        with_command(load_harness("command"), command)


def test_an_unknown_harness_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        load_harness("claude-cod")
    assert "claude-code" in caught.value.hint


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"program": ["x"], "argumnts": []}, "argumnts"),
        ({"program": "x"}, "array"),
        ({"arguments": []}, "program"),
        ({"program": ["x"], "limits": []}, "object"),
        ({"program": ["x"], "limits": {"max_turns": "3"}}, "array"),
        ({"program": ["x"], "limits": {"max_words": ["3"]}}, "max_turns"),
        ({"program": ["x"], "api": "telepathy"}, "anthropic"),
        ({"program": ["x"], "stop_signal": "KILL"}, "INT"),
        ({"program": ["x"], "install": 3}, "text"),
    ],
)
def test_a_bad_file_is_an_error_with_its_place(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_harness("tool", make_table(tmp_path, **keys))
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/tool.json:1:")


def test_a_file_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tool.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        load_harness("tool", tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}/tool.json:1:")


def test_a_program_that_is_not_installed_has_neither_path_nor_version(tmp_path: Path) -> None:
    harness = load_harness("tool", make_table(tmp_path, program=["no-such-program"], version=["--version"]))
    assert find_program(harness) is None
    assert read_version(harness) == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [("echo codex-cli 0.171.0", "0.171.0"), ("echo v3.2 >&2", "3.2"), ("echo 1.0; exit 2", ""), ("echo unknown", "")],
)
def test_a_version_is_the_first_number_that_a_program_prints(tmp_path: Path, text: str, version: str) -> None:
    program = tmp_path / "tool"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    harness = load_harness("tool", make_table(tmp_path, program=[str(program)], version=["--version"]))
    assert read_version(harness) == version


def test_a_program_without_a_version_option_is_looked_up_in_its_package(tmp_path: Path) -> None:
    package = tmp_path / "node_modules/tool"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "4.5.6"}')
    program = package / "bin/tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert read_version(load_harness("tool", make_table(tmp_path, program=[str(program)]))) == "4.5.6"
