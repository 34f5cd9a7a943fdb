"""`lemming logs`: the engine's log, or an agent's, for people."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming import paths
from lemming.commands.options import AnyAgentName, AsJson
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import Style, one_line, painted, show, show_json, tell
from lemming.files import fs
from lemming.files.jsontext import JsonProblem, parse

_BLOCK_BYTES = 64 << 10
_LOOK_EVERY_S = 0.5
_STYLES: dict[str, Style] = {"warning": "yellow", "error": "red", "critical": "red"}
_SHOWN_FIRST = ("timestamp", "level", "event", "tick", "agent", "status")


def logs(
    ctx: typer.Context,
    name: AnyAgentName = None,
    number: Annotated[int, typer.Option("-n", min=0, metavar="N", help="How many lines.")] = 20,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as lines are added; Ctrl-C ends it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest lines of the engine's log, or of an agent's.

    \b
    Examples:
      lemming logs -f
      lemming logs editor -n 3
      lemming logs --json -n 1000 | jq 'select(.level == "warning")'
    """
    base = find_org(ctx)
    if name is not None:
        require_folder(base, name)
    file = base / (paths.ENGINE_LOG if name is None else paths.activity_log(name))
    lines, end = _newest(file, number)
    for line in lines:
        _show_line(line, as_json=as_json)
    if not lines and not follow:
        tell("nothing logged yet")
    while follow:
        time.sleep(_LOOK_EVERY_S)
        lines, end = _added(file, end)
        for line in lines:
            _show_line(line, as_json=as_json)


def _newest(file: Path, number: int) -> tuple[list[bytes], int]:
    """Return the last whole lines of a file, and the offset at which they end."""
    try:
        end = file.stat().st_size
        lines = fs.read_tail(file, _BLOCK_BYTES, number + 1)
    except FileNotFoundError:
        return [], 0
    whole = lines[: lines.rfind(b"\n") + 1]
    return (whole.splitlines()[-number:] if number else []), end - (len(lines) - len(whole))


def _added(file: Path, start: int) -> tuple[list[bytes], int]:
    """Return the whole lines added since an offset, and the new one; a shorter file is read afresh."""
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return [], 0
    start = start if size >= start else 0
    with file.open("rb") as stream:
        stream.seek(start)
        raw = stream.read()
    whole = raw[: raw.rfind(b"\n") + 1]
    return whole.splitlines(), start + len(whole)


def _show_line(raw: bytes, *, as_json: bool) -> None:
    try:
        line = parse(raw)
    except JsonProblem:
        line = None
    if not isinstance(line, dict):
        line = {"event": raw.decode("utf-8", "replace")}
    if as_json:
        show_json("log", line)
    else:
        show(_rendered(line))


def _rendered(line: dict[str, Any]) -> str:
    when = str(line.get("timestamp", ""))[:19].replace("T", " ")
    place = f"tick {line['tick']}" if "tick" in line else ""
    event = f"{line.get('event', '')} {line.get('status', '')}".rstrip()
    words = [when, place, str(line.get("agent", "")), painted(_plain(event), _style_of(line))]
    words += [f"{key}={_plain(value)}" for key, value in line.items() if _is_worth_a_word(key, value)]
    return "  ".join(filter(None, words))


def _style_of(line: dict[str, Any]) -> Style:
    return _STYLES.get(str(line.get("level")), "plain")


def _is_worth_a_word(key: str, value: Any) -> bool:
    return key not in _SHOWN_FIRST and value not in ("", None)


def _plain(value: Any) -> str:
    return one_line(str(value), 300)
