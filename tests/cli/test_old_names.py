"""Names of 0.2.0 keep working; a person at a terminal is told the new name once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming, Ran

from lemming.cli import is_listed, load_command
from lemming.commands.command_table import (
    COMMANDS,
    OLD_COMMANDS,
    OLD_GROUPS,
    OLD_OPTIONS,
    OLD_SUBCOMMANDS,
    find_command,
    replace_old_names,
)
from lemming.testing import make_org, resume


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plan", "schedule"),
        ("plan calendar", "calendar"),
        ("plan --why bob ada", "schedule --why bob ada"),
        ("approvals", "waiting"),
        ("waiting approvals", "waiting"),
        ("resume ada", "unpause ada"),
        ("vouch ada/memory/goal", "trust endorse ada/memory/goal"),
        ("trust vouch ada/memory/goal", "trust endorse ada/memory/goal"),
        ("endorse ada/memory/goal", "trust endorse ada/memory/goal"),
        ("graph --agent ada", "agents graph --agent ada"),
        ("watch", "status --watch"),
        ("status watch", "status --watch"),
        ("logs metrics", "export metrics"),
        ("compare . .", "diff . ."),
        ("history compare . .", "diff . ."),
        ("show 1", "history show 1"),
        ("run-forever serve --help", "channels serve --help"),
        ("report --html ../page", "export report --output ../page"),
        ("check chaos --here x", "check chaos --in-place x"),
        ("gates standard", "gates defaults"),
        ("models adopt nothing.gguf", "models add-weights nothing.gguf"),
        ("requests --of ada --to bob", "requests --from ada --held-by bob"),
        ("repair prune --journals 5", "prune --keep-ticks 5"),
        ("repair upgrade", "backup upgrade"),
        ("schema turn", "export schema reply"),
        ("schema shown", "export schema output"),
    ],
)
def test_an_old_name_does_what_the_new_one_does(base: Path, lemming: Lemming, old: str, new: str) -> None:
    ran: list[Ran] = []
    for words in (old, new):
        make_org(base, resume("ada"), resume("bob"), org={"trust": {}})
        lemming("memory", "set", "ada", "goal", "to write")
        ran.append(lemming(*words.split(), "--json"))
    assert ran[0] == ran[1]
    assert "there is no command" not in ran[0].err
    assert "no such option" not in ran[0].err


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(command, old, new) for command, options in OLD_OPTIONS.items() for old, new in options.items()],
)
def test_an_old_option_is_an_option_of_the_command_no_more_and_its_new_name_is(
    command: str, old: str, new: str
) -> None:
    name, rest, _ = find_command(command.split())
    loaded: Any = load_command(name)
    for word in rest:
        loaded = loaded.commands[word]
    options = {option for parameter in loaded.params for option in parameter.opts}
    assert (old in options, new in options) == (command == "requests" and old == "--from", True)
    assert replace_old_names(name, [*rest, old, "x", "--", old])[0] == [*rest, new, "x", "--", old]
    assert replace_old_names(name, [*rest, f"{old}=x"])[0] == [*rest, f"{new}=x"]


def test_an_old_name_is_in_no_help_and_no_group() -> None:
    names = [name for section in COMMANDS.values() for name in section]
    assert {*OLD_COMMANDS} & {*names} == set()
    for old, new in OLD_COMMANDS.items():
        assert is_listed(find_command([old])[0]), new
    for name, inner in OLD_GROUPS.items():
        assert {*inner} <= {*names, *OLD_COMMANDS}, name
    for name, subcommands in OLD_SUBCOMMANDS.items():
        assert {*subcommands} & {*getattr(load_command(name), "commands", ())} == set()


def test_only_a_person_at_a_terminal_is_told_the_new_name(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    assert lemming("plan").err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert lemming("plan").err == "note: `lemming plan` is now `lemming schedule`; the old name still works\n"
    assert "`lemming prune --journals` is now `lemming prune --keep-ticks`" in (lemming("prune", "--journals", "5").err)
    assert lemming("plan", "--json").err == ""
    assert lemming("schedule").err == ""


NAMES_OF_0_2_0 = """
agents answer apply approvals approve ask backup bisect calendar cancel channels chaos chat check compare cost
credits dash deny diff doctor eval events export findings fork gates graph history import inbox init logs mcp
memory metrics models outbox pause plan plans prompt prune rehearse repair replay report requests restore
resume rewind run-forever run-once schema send serve service show skills status tick tools trust upgrade
validate verify vouch waiting watch why
"""
GONE = {"bisect"}


@pytest.mark.parametrize("name", NAMES_OF_0_2_0.split())
def test_each_command_of_0_2_0_leads_to_a_command_or_says_what_to_use(name: str, bare: Lemming) -> None:
    command, _, _ = find_command([name])
    assert is_listed(command) == (name not in GONE)
    if name in GONE:
        assert "fix: " in bare(name).err


def test_there_are_at_most_sixty_commands() -> None:
    assert sum(map(len, COMMANDS.values())) <= 60
