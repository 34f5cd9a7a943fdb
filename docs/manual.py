"""Generate the manual page `lemming.1` from the commands. A wheel installs the page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lemming.cli import load_command
from lemming.commands.command_table import COMMANDS
from lemming.kernel.files import fs

DESCRIPTION = """\
An organisation is a folder: each agent is a directory with a \\fIresume.json\\fR, agents talk only by writing
entries into their own outbox, a clock of ticks decides who runs, and all state is JSON files. A kill at any
moment loses nothing, and no finished model call is paid for twice.
.PP
\\fBlemming\\fR works on the organisation given with \\fB\\-C\\fR, else the one in
\\fBLEMMING_ROOT\\fR, else the nearest folder, from here upwards, that holds one. Data goes to standard
output, messages to standard error; every command takes \\fB\\-\\-json\\fR and
\\fB\\-\\-help\\fR."""


def render_manual(command_line: str) -> str:
    """Return the page in man(7) macros.

    `render_command_line` is the text of `cli.md` with the exit statuses.
    """
    sections = {
        "NAME": "lemming \\- run an organisation of AI agents from a folder",
        "SYNOPSIS": "\\fBlemming\\fR [\\fB\\-C\\fR \\fIDIR\\fR] \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]",
        "DESCRIPTION": DESCRIPTION,
        "COMMANDS": "\n".join(_render_commands()),
        "EXIT STATUS": "\n".join(_render_statuses(command_line)),
    }
    return '.TH LEMMING 1 "" LeMMing\n' + "".join(f".SH {title}\n{text}\n" for title, text in sections.items())


def _render_commands() -> Iterator[str]:
    for title, names in COMMANDS.items():
        yield f".SS {title}"
        for name in names:
            yield f".TP\n\\fB{_escape_roff(name)}\\fR\n{_escape_roff(_extract_first_sentence(load_command(name).help or ''))}"


def _render_statuses(command_line: str) -> Iterator[str]:
    table = command_line.partition("## Exit status\n")[2].partition("\n## ")[0]
    for status, meaning in re.findall(r"^\| ([\d, ]+) \| (.+?) \|$", table, re.MULTILINE):
        description = re.sub(r"`|\\(?=\|)", "", meaning)
        yield f".TP\n\\fB{status}\\fR\n{_escape_roff(description)}"


def _extract_first_sentence(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _escape_roff(text: str) -> str:
    """Escape a text for man(7).

    >>> _escape_roff(".TH").endswith(".TH")
    True
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main(docs: Path) -> None:
    """Write the page into the documentation folder."""
    fs.write_atomic(docs, "lemming.1", render_manual((docs / "cli.md").read_text("utf-8")).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
