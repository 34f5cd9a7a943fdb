"""Writes the manual page, `lemming.1`, out of the commands as they are; a wheel installs it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lemming.cli import COMMANDS, load_command
from lemming.kernel.files import fs

WHAT_IT_IS = """\
An organisation is a folder: each agent is a directory with a \\fIresume.json\\fR, agents talk only by writing
entries into their own outbox, a clock of ticks decides who runs, and all state is JSON files. A kill at any
moment loses nothing, and no finished model call is paid for twice.
.PP
\\fBlemming\\fR works on the organisation given with \\fB\\-C\\fR, else the one in
\\fBLEMMING_ROOT\\fR, else the nearest folder, from here upwards, that holds one. Data goes to standard
output, everything else to standard error; every command takes \\fB\\-\\-json\\fR and
\\fB\\-\\-help\\fR."""


def manual(command_line: str) -> str:
    """Return the page in the macros of man(7); its exit statuses are those of `cli.md`, which is given."""
    sections = {
        "NAME": "lemming \\- run an organisation of AI agents from a folder",
        "SYNOPSIS": "\\fBlemming\\fR [\\fB\\-C\\fR \\fIDIR\\fR] \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]",
        "DESCRIPTION": WHAT_IT_IS,
        "COMMANDS": "\n".join(_commands()),
        "EXIT STATUS": "\n".join(_statuses(command_line)),
    }
    return '.TH LEMMING 1 "" LeMMing\n' + "".join(
        f".SH {title}\n{text}\n" for title, text in sections.items()
    )


def _commands() -> Iterator[str]:
    for title, names in COMMANDS.items():
        yield f".SS {title}"
        for name in names:
            yield f".TP\n\\fB{_escaped(name)}\\fR\n{_escaped(_first_sentence(load_command(name).help or ''))}"


def _statuses(command_line: str) -> Iterator[str]:
    table = command_line.partition("## Exit status\n")[2].partition("\n## ")[0]
    for status, meaning in re.findall(r"^\| ([\d, ]+) \| (.+?) \|$", table, re.MULTILINE):
        words = re.sub(r"`|\\(?=\|)", "", meaning)
        yield f".TP\n\\fB{status}\\fR\n{_escaped(words)}"


def _first_sentence(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _escaped(text: str) -> str:
    """Return a text that man(7) takes for nothing but text.

    >>> print(_escaped("-C DIR\\\\n"))
    \\-C DIR\\en
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main(docs: Path) -> None:
    """Write the page into the folder of the documentation."""
    fs.publish(docs, "lemming.1", manual((docs / "cli.md").read_text("utf-8")).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
