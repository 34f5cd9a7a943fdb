"""Every command asks for the format first: what only a newer program knows is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming
from test_traps import CHANGES, LOOKS, WAIT, all_commands

import lemming as package
from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import NEWEST_FORMAT
from lemming.testing import make_org, resume, tree

FURTHER = [
    "chat ada", "dash", "models use gpt", "agents new cyd", "tools new other",
    "import claude ../other --into .", "diff ../org .",
    "run-once", "run-forever", "gates defaults --write", "fork --at 1 ../fork", "rewind --to 1",
    "agents rm ada", "schedule", "prune --yes", "history show --at 1", "diff 1..2", "workers stop ada",
]  # fmt: skip
PRINTS = {"gates defaults"}
OF_NO_ORGANISATION = {
    "skills export",
    "models add-weights",
    "models pull",
    "init",
    "restore",
    "export schema",
    "agents show human",
    "mcp serve --help",
}
"""`init` makes one; a backup is looked at as it is unpacked (tests/service/test_formats_of_files.py)."""


def test_every_command_refuses_a_format_of_tomorrow_before_it_touches_anything(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    org = {"format": NEWEST_FORMAT + 1, "visibility": {"a_key": "of tomorrow"}}
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), org=org)
    before, tried, known = tree(base, without=()), set(), [*all_commands()]
    (base.parent / "other").mkdir()
    monkeypatch.chdir(base)
    for words in (*LOOKS, *WAIT, *CHANGES, *FURTHER):
        command = max((it for it in known if f"{words} ".startswith(f"{it} ")), key=len, default=words)
        if {command, words} & OF_NO_ORGANISATION or words in PRINTS:
            continue
        ran = lemming(*words.split())
        if "error[LMG-201]" in ran.err:  # no words of this command's: others of it are tried
            continue
        tried.add(command)
        assert (words, ran.status) == (words, 3), ran
        assert (words, "pip install -U lemming-engine" in ran.err) == (words, True)
        assert (words, tree(base, without=())) == (words, before)
    assert sorted({*known} - tried - OF_NO_ORGANISATION) == []


def test_nor_does_a_program_touch_it(base: Path) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}))
    fs.write_atomic(base, "config/org.json", dump_pretty({"format": NEWEST_FORMAT + 1}))
    before = tree(base, without=())
    for start in (lambda: run_once(base), lambda: package.ask(base, "ada", "Hello?")):
        with pytest.raises(ConfigError, match=f"got {NEWEST_FORMAT + 1}"):
            start()
        assert tree(base, without=()) == before
