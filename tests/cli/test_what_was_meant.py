"""A word that is nearly right, or right elsewhere, is led to what it means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.commands.command_table import READ_ONLY_COMMANDS
from lemming.kernel.files import fs
from lemming.testing import make_org, resume


@pytest.mark.parametrize(("typed", "meant"), [("onn", "on"), ("of", "off"), ("adda", "ada")])
def test_history_leads_to_the_nearest_of_its_words_and_the_agents(
    base: Path, lemming: Lemming, typed: str, meant: str
) -> None:
    make_org(base, resume("ada"))
    ran = lemming("history", typed)
    assert ran.status == 2
    assert f'did you mean "{meant}"?' in ran.err


def test_a_choice_leads_to_the_nearest_and_a_tool_that_nobody_may_call_to_permissions(
    base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"))
    assert 'did you mean "desk"?' in lemming("init", str(tmp_path / "x"), "--template", "dsk").err
    ran = lemming("tools", "call", "file_write")
    assert "no agent may call file_write" in ran.err
    assert 'add "file_write" to permissions.tools' in ran.err
    assert "--agent" not in ran.err


@pytest.mark.parametrize("age", ["3600", "3600s", "3600.0 s", "60m", "1h", "0.5d"])
def test_a_duration_may_be_typed_with_a_unit(base: Path, lemming: Lemming, age: str) -> None:
    make_org(base, resume("ada"))
    assert lemming("run-forever", "--max-ticks", "1", "--interval", age).status == 0
    assert lemming("status", "--check", "--max-age", age).status == 0
    os.utime(base / "tick.json", (1_000_000_000, 1_000_000_000))
    assert lemming("status", "--check", "--max-age", age).status == 1


@pytest.mark.parametrize("typed", ["10x", "soon", "-5", "", "1e3", "m"])
def test_a_wrong_duration_is_told_what_is_accepted(base: Path, lemming: Lemming, typed: str) -> None:
    make_org(base, resume("ada"))
    for words in (("status", "--max-age"), ("run-forever", "--interval")):
        ran = lemming(*words, typed)
        assert ran.status == 2
        assert "expected seconds or a duration such as 90s, 10m, 2h or 1d" in ran.err


@pytest.mark.parametrize(("noun", "look"), [("agents", "show"), ("credits", "show"), ("memory", "list")])
def test_an_agents_name_after_a_noun_looks_at_that_agent(base: Path, lemming: Lemming, noun: str, look: str) -> None:
    make_org(base, resume("ada"), resume("bob"))
    lemming("memory", "set", "ada", "goal", "to write")
    asked = lemming(noun, "ada", "--json")
    assert asked == lemming(noun, look, "ada", "--json")
    assert [fact["agent"] for fact in asked.objects] == ["ada"]


@pytest.mark.parametrize(("typed", "meant"), [("adda", "ada"), ("lst", "list"), ("lost", "list")])
def test_after_a_noun_commands_and_agents_are_suggested(base: Path, lemming: Lemming, typed: str, meant: str) -> None:
    make_org(base, resume("ada"))
    ran = lemming("memory", typed)
    assert ran.status == 2
    assert f'did you mean "{meant}"?' in ran.err


@pytest.mark.parametrize("typed", ["existing", "here", "news"])
def test_init_asks_whether_the_current_folder_is_meant(
    tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    here = tmp_path / "news"
    here.mkdir()
    monkeypatch.chdir(here)
    ran = bare("init", typed, "--template", "empty")
    assert ran.status == 2
    assert "run `lemming init` alone to use the current folder" in ran.err
    assert list(here.iterdir()) == []
    assert bare("init", str(here / typed), "--template", "empty").status == 0
    ran = bare("init", "--template", "empty")
    assert ran.status == 0
    assert "creates the other" not in ran.err


def test_init_makes_no_organisation_among_agents(base: Path, bare: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = bare("init", str(base / "agents/bob"))
    assert ran.status == 2
    assert "create an agent with `lemming agents new bob`" in ran.err
    assert not (base / "agents/bob").exists()


def test_init_where_an_organisation_is_says_so(base: Path, bare: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = bare("init", str(base))
    assert ran.status == 2
    assert "the folder is already an organisation" in ran.err


def test_on_a_terminal_what_was_kept_and_changed_fits_its_width(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada", title="x" * 300), resume("bob"))
    fs.write_atomic(base, "config/org.json", b'{"history": "git"}')
    lemming("run-once", "-q")
    wide = lemming("show", "1").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("history",), ("show", "1", "--stat"), ("show", "1"), ("diff", "0", "1")):
        ran = lemming(*words)
        assert ran.status == 0
        assert max(map(len, ran.out.splitlines())) <= 70
    assert "ada, bob" in lemming("history").out
    assert max(map(len, wide.splitlines())) > 70


@pytest.mark.parametrize(
    ("typed", "wrong", "fix"),
    [
        ("tools lsit", 'there is no command "lsit" within lemming tools', 'did you mean "list"?'),
        ("history shwo 1", 'there is no command "shwo" within lemming history', 'did you mean "show"?'),
        ("trust agre", 'there is no command "agre" within lemming trust', "lemming trust\n"),
        ("requests shwo x", 'there is no command "shwo" within lemming requests', "lemming requests ID\n"),
        ("calendar lsit", 'there is no command "lsit" within lemming calendar', "lemming calendar\n"),
        ("agents remove", 'there is no command "remove" within lemming agents', "lemming agents rm NAME"),
        ("agents remvoe ada", 'there is no command "remvoe" within lemming agents', "lemming agents rm NAME"),
        ("agents rm ada b", "got unexpected extra argument(s) (b)", "lemming agents rm --help"),
        ("inbox lsit", 'agent "lsit" does not exist', "agents here: ada"),
        ("repair prun", 'there is no command "prun" within lemming repair', 'did you mean "prune"?'),
        ("mcp xx", 'there is no command "xx" within lemming mcp', "lemming mcp --help"),
        ("check --newset 3", "no such option: --newset", "did you mean --newest? lemming check --help"),
        ("agents new bob --quiet", "no such option: --quiet", "lemming agents new --help"),
    ],
)
def test_a_mistyped_command_or_option_within_another_is_named_and_led_to_the_nearest(
    base: Path, lemming: Lemming, typed: str, wrong: str, fix: str
) -> None:
    make_org(base, resume("ada"))
    ran = lemming(*typed.split())
    assert ran.status == 2
    assert f"{wrong}\n  fix: {fix}" in ran.err


@pytest.mark.parametrize(
    ("typed", "wrong", "fix"),
    [
        ("pause lisa", 'agent "lisa" does not exist', 'did you mean "lise"?'),
        ("unpause lisa", 'agent "lisa" does not exist', 'did you mean "lise"?'),
        ("findings lisa", 'agent "lisa" does not exist', 'did you mean "lise"?'),
        ("pause shop", 'agent "shop" does not exist', "agents here: ada, lise"),
        ("logs shop", 'agent "shop" does not exist', "agents here: ada, lise"),
        ("run-once list", "got unexpected extra argument(s) (list)", "lemming run-once --help"),
        ("prune list", "got unexpected extra argument(s) (list)", "lemming prune --help"),
        ("chaos list", "got unexpected extra argument(s) (list)", "lemming check chaos --help"),
        ("logs list", 'there is no command "list" within lemming logs', "lemming logs\n"),
        ("logs evnts", 'there is no command "evnts" within lemming logs', 'did you mean "events"?'),
        ("credits add", 'there is no command "add" within lemming credits', "lemming credits grant NAME N"),
        ("check list", 'there is no command "list" within lemming check', "lemming check --list"),
    ],
)
def test_a_mistyped_agent_is_led_to_the_agents_and_nobody_to_what_changes_something_for_all(
    base: Path, lemming: Lemming, typed: str, wrong: str, fix: str
) -> None:
    make_org(base, resume("ada"), resume("lise"))
    ran = lemming(*typed.split())
    assert ran.status == 2
    assert f"{wrong}\n  fix: {fix}" in ran.err


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", sorted(READ_ONLY_COMMANDS))
def test_a_command_that_list_and_show_lead_to_changes_nothing_alone(base: Path, lemming: Lemming, name: str) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/org.json", b'{"history": "git"}')
    lemming("run-once", "-q")
    before = _contents(base)
    assert lemming(name).status == 0
    assert _contents(base) == before


def _contents(base: Path) -> dict[Path, bytes]:
    return {it: it.read_bytes() for it in base.rglob("*") if it.is_file()}
