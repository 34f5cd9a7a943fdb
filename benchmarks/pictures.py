"""Render the README's terminal picture from a real run of the page's first block.

python -m benchmarks.pictures docs/pictures
"""

from __future__ import annotations

import contextlib
import html
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).parent.parent
ROWS_AND_COLUMNS = (50, 100)
CHARACTER_PX, LINE_PX, MARGIN_PX = 7.8, 18, 14
_STYLE = re.compile(r"\x1b\[(\d*)m")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y"}
_CSS = """text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }
text { fill: #d7dce2 } rect { fill: #15191e } .p { fill: #7cc7ff } .b { font-weight: bold }
.d { fill: #8b949e } .r { fill: #ff8b82 } .g { fill: #7bd88f } .y { fill: #e6c06c }"""


def main() -> None:
    """Run the block and write the picture into the given folder."""
    folder = Path(sys.argv[1])
    (folder / "desk.svg").write_text(render_svg(record_session(extract_commands(REPOSITORY / "README.md"))))


def extract_commands(page: Path) -> list[str]:
    """Return the commands of a page's blocks up to the first `lemming verify`, without the installation."""
    shown = page.read_text().partition("\nlemming verify\n")
    blocks = re.findall(r"```sh\n(.*?)```", "".join(shown[:2]) + "```", re.DOTALL)
    return [line for line in "".join(blocks).splitlines() if "pip install" not in line]


def record_session(commands: list[str]) -> list[str]:
    """Return the terminal output of commands typed in sequence in an empty folder."""
    script = "\n".join(f"echo {shlex.quote(f'$ {line}')}\n{line}" for line in commands)
    with TemporaryDirectory(prefix="lemming-picture-") as folder:
        program = Path(folder, "bin/lemming")
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lemming "$@"\n')
        program.chmod(0o755)
        inherited = {
            name: value for name, value in os.environ.items() if name not in ("LEMMING_ROOT", "NO_COLOR", "COLUMNS")
        }
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        variables = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"}
        output = _run_in_terminal(script, folder, {**inherited, **variables, "PYTHONSAFEPATH": "1"})
    lines = [line.rpartition("\r\x1b[K")[2] for line in output.split("\r\n")]  # a line may have been written anew
    return [re.sub(r"bash: line .* Killed .*", "Killed", line) for line in lines if line]


def _run_in_terminal(script: str, folder: str, environment: dict[str, str]) -> str:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, ROWS_AND_COLUMNS)
    bash = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    output = b""
    with contextlib.suppress(OSError), open(master, "rb", buffering=0) as terminal:  # Linux: at the end an error
        while chunk := terminal.read(65536):
            output += chunk
    if bash.wait():
        raise SystemExit(output.decode())
    return output.decode()


def strip_styles(lines: list[str]) -> list[str]:
    """Return lines without colours and without durations."""
    return [re.sub(r"\d+\.\ds", "0.0s", _STYLE.sub("", line)) for line in lines]


def extract_text(picture: str) -> list[str]:
    """Return the text lines of a picture."""
    return [html.unescape(re.sub(r"<[^>]*>", "", line)) for line in re.findall(r"<text [^>]*>(.*?)</text>", picture)]


def render_svg(lines: list[str]) -> str:
    """Render terminal lines as an SVG picture."""
    width = MARGIN_PX * 2 + max(len(_STYLE.sub("", line)) for line in lines) * CHARACTER_PX
    height = MARGIN_PX * 2 + len(lines) * LINE_PX
    text_elements = "\n".join(
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + LINE_PX * row + 13}">{_render_spans(line)}</text>'
        for row, line in enumerate(lines)
    )
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="A recorded terminal">\n'
        f'<style>{_CSS}</style>\n<rect width="100%" height="100%" rx="8"/>\n{text_elements}\n</svg>\n'
    )


def _render_spans(line: str) -> str:
    """Return a line with its colours as spans."""
    if line.startswith("$ "):
        return f'<tspan class="p">{html.escape(line)}</tspan>'
    parts = _STYLE.split(line)  # a text, then a code and a text, and so on
    spans = [html.escape(parts[0])]
    for code, text in zip(parts[1::2], parts[2::2], strict=True):
        style = _CLASSES.get(code)
        spans.append(f'<tspan class="{style}">{html.escape(text)}</tspan>' if style else html.escape(text))
    return "".join(spans)


if __name__ == "__main__":
    main()
