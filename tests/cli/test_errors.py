"""How commands fail: what is said, where it points, what the process ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import Lemming, start

from lemming.commands.error_reporting import CommandSession, run_guarded
from lemming.commands.terminal import OutputClosed
from lemming.kernel.base.errors import CorruptState, DiskError, LemmingError, OrgBusy
from lemming.kernel.files import fs
from lemming.testing import make_org, resume


def test_a_wrong_value_is_shown_with_its_line_and_a_caret(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/org.json", b'{\n  "inbox_limit": 3,\n  "tick_interval_s": "often"\n}\n')
    ran = lemming("run-once")
    assert ran.status == 3
    assert ran.err.splitlines() == [
        'error[LMG-302]: config/org.json:3:3 /tick_interval_s: expected a number, got "often"',
        '  3 |   "tick_interval_s": "often"',
        "    |   ^^^^^^^^^^^^^^^^^",
    ]


def test_a_long_line_is_cut_around_the_place(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    filler = '"plugins": [' + ", ".join('"json"' for _ in range(100)) + "]"
    fs.write_atomic(base, "config/org.json", f'{{{filler}, "inbox_limit": "x"}}'.encode())
    _, source, caret = lemming("run-once").err.splitlines()
    assert max(len(source), len(caret)) < 120
    assert source[caret.index("^") : caret.rindex("^") + 1] == '"inbox_limit"'


def test_every_problem_of_a_file_is_shown(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/org.json", b'{"inbox_limit": "x", "tick_interval_s": "y", "retenton_ticks": 1}')
    ran = lemming("run-once")
    assert ran.err.count("error[LMG-302]") == 2
    assert ran.err.count("error[LMG-301]") == 1
    assert 'fix: did you mean "retention_ticks"?' in ran.err


def test_with_json_the_error_is_an_object_on_standard_output(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "tick.json", b"nonsense")
    ran = lemming("run-once", "--json")
    assert ran.status == 7
    (error,) = ran.objects
    assert error["type"] == "error"
    assert error["code"] == "LMG-101"
    assert error["where"] == "tick.json"
    assert ran.err.startswith("error[LMG-101]: tick.json: ")


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["run-onec"], 'there is no command "run-onec"', 'did you mean "run-once"?'),
        (["run-once", "--jsn"], "no such option: --jsn", "lemming run-once --help"),
        (["models", "add"], 'there is no command "add"', "lemming models use MODEL"),
        (["prompt"], "missing argument 'AGENT'", "lemming prompt --help"),
        (["fork", "there"], "missing option '--at'", "lemming fork --at TICK DIR (`lemming fork --help`)"),
        (["schedule", "--why", "ada"], "requires 2 arguments", "lemming schedule --help"),
        (["outbox", "ada", "-n", "0"], "'-n': expected a number of at least 1", "lemming outbox --help"),
        (["tick", "nine"], "'TICK': expected a whole number, got \"nine\"", "lemming tick --help"),
        (["schema", "resum"], "'resum' is not one of", 'did you mean "resume"?'),
    ],
)
def test_a_mistyped_command_line_ends_with_2_and_says_what_to_type(
    bare: Lemming, words: list[str], said: str, hint: str
) -> None:
    ran = bare(*words)
    assert ran.status == 2
    assert ran.err.startswith("error[LMG-201]: ")
    assert said in ran.err
    assert hint in ran.err


def test_outside_an_org_the_way_to_one_is_said(tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = bare("status")
    assert ran.status == 2
    assert ran.err.startswith("error[LMG-202]: ")
    assert "lemming init" in ran.err


def test_the_org_is_found_from_any_folder_inside_it(base: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    make_org(base, resume("ada"))
    monkeypatch.chdir(base / "agents/ada")
    assert bare("status", "--json").objects[0]["org"] == str(base)


def test_the_environment_names_the_org_and_the_option_wins(
    base: Path, tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    monkeypatch.setenv("LEMMING_ROOT", str(base))
    assert bare("status", "--json").objects[0]["org"] == str(base)
    assert bare("-C", str(tmp_path), "status").status == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OrgBusy("busy"), 4),
        (CorruptState("damaged"), 7),
        (DiskError("full"), 8),
        (PermissionError(13, "Permission denied", "/x/tick.json"), 8),
        (ZeroDivisionError("oh"), 70),
        (KeyboardInterrupt(), 130),
        (OutputClosed(), 141),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_status(error: BaseException, status: int) -> None:
    assert run_guarded(_raiser(error), CommandSession(), as_json=False) == status


def test_a_mistake_of_ours_is_one_line_and_where_to_find_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_guarded(_raiser(ZeroDivisionError("oh")), CommandSession(), as_json=False)
    brief = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oh" in brief
    assert "LEMMING_DEBUG=1" in brief
    assert "Traceback" not in brief
    monkeypatch.setenv("LEMMING_DEBUG", "1")
    run_guarded(_raiser(LemmingError("known")), CommandSession(), as_json=False)
    assert "Traceback" in capsys.readouterr().err


def _raiser(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_colour_is_for_terminals_unless_asked_for(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    assert "\033[" not in lemming("plan").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\033[1m" in lemming("plan").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[" not in lemming("plan").out


def test_a_reader_that_stops_early_is_no_error(base: Path) -> None:
    make_org(base, resume("ada"))
    process = start("-C", str(base), "schema", "resume")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process:
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_a_key_that_is_missing_beside_one_with_a_slip_is_told_to_be_renamed(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), models={"gpt": {"provder": "openai", "model": "x"}})
    assert 'rename "provder" to "provider"' in lemming("run-once").err
    make_org(base, {"name": "ada", "instruction": "x"})
    assert 'rename "instruction" to "instructions"' in lemming("validate").err


def test_the_version_is_told_by_the_short_option_too(lemming: Lemming) -> None:
    ran = lemming("-V")
    assert (ran.status, ran.out.split()[0]) == (0, "lemming")


@pytest.mark.parametrize("named", ["agents/ada", "ada"])
def test_why_of_an_agent_says_what_can_be_asked_about(base: Path, lemming: Lemming, named: str) -> None:
    make_org(base, resume("ada"))
    assert "lemming why agents/ada/resume.json" in lemming("why", named).err


@pytest.mark.parametrize(
    ("value", "fix"), [('"5m"', "write the number without quotes and without a unit"), ("-1", "write 0 or more")]
)
def test_a_number_that_is_none_or_too_small_is_told_with_what_to_write(
    base: Path, lemming: Lemming, value: str, fix: str
) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/org.json", f'{{"tick_interval_s": {value}}}'.encode())
    assert f"fix: {fix}" in lemming("run-once").err
