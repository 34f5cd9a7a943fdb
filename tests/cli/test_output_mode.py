"""A command prints an object and a text; the reader of its output gets one of them."""

from __future__ import annotations

import json

import pytest

from lemming.commands import terminal
from lemming.commands.terminal import output_mode


def print_everything() -> None:
    terminal.print_json("probe", {"n": 1})
    terminal.print_data("data")
    terminal.print_text("text")
    terminal.print_table(["HEAD"], [["cell"]])
    terminal.print_pretty_json({"pretty": True})
    terminal.print_notice("notice")
    terminal.print_warning("warning")


def test_a_program_gets_objects_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with output_mode(as_json=True):
        print_everything()
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"v": 1, "type": "probe", "n": 1}
    assert printed.err == "warning\n"


def test_a_person_gets_texts_and_notices(capsys: pytest.CaptureFixture[str]) -> None:
    with output_mode(as_json=False):
        print_everything()
    printed = capsys.readouterr()
    assert printed.out == 'data\ntext\nHEAD\ncell\n{\n  "pretty": true\n}\n'
    assert printed.err == "notice\nwarning\n"


def test_a_person_who_wants_errors_only_gets_data_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with output_mode(as_json=False, quiet=True):
        print_everything()
    printed = capsys.readouterr()
    assert (printed.out.startswith("data\n"), printed.err) == (True, "warning\n")


def test_a_command_within_a_command_leaves_the_reader_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    with output_mode(as_json=True):
        with output_mode(as_json=False):
            terminal.print_data("inner")
        terminal.print_data("outer")
    assert capsys.readouterr().out == "inner\n"


def test_a_table_keeps_the_indent_of_a_tree_and_cuts_to_a_width() -> None:
    rows = [["WHO", "TEXT"], ["  ada", "two  words\n and more"]]
    assert terminal.align_columns(rows) == ["WHO    TEXT", "  ada  two words and more"]
    assert terminal.align_columns(rows, width=12)[1] == "  ada  two …"
