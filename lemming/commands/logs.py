"""`lemming logs`: the log of the engine or of an agent, for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from lemming.commands.command_context import CommandContext, argument, option, parse_seconds, require_agent_folder
from lemming.commands.terminal import Style, one_line, print_data, print_json, print_notice, style_text
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs

_BLOCK_BYTES = 64 << 10
_POLL_INTERVAL_S = 0.5
_STYLES: dict[str, Style] = {"warning": "yellow", "error": "red", "critical": "red"}
Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = get_args(Level)
_LEADING_FIELDS = ("timestamp", "level", "event", "tick", "agent", "status")


def logs(
    context: CommandContext,
    name: Annotated[
        str | None, argument("AGENT", "Agent whose log to show. Default: the engine's log.", completes_agents=True)
    ] = None,
    number: Annotated[int, option("-n --limit N", "Number of lines to show.", min=0)] = 20,
    follow: Annotated[bool, option("-f --follow", "Follow the log until Ctrl-C.")] = False,
    since: Annotated[
        float | None,
        option("--since DURATION", "Show lines of this period only: 90s, 15m, 2h, 3d.", parser=parse_seconds),
    ] = None,
    level: Annotated[Level | None, option("--level", "Show lines of this level and above only.")] = None,
    grep: Annotated[str, option("--grep TEXT", "Show lines that contain this text, ignoring case.")] = "",
) -> None:
    """Show the log of the engine or of an agent.

    Prints the newest lines; with --since, --level or --grep, only matching lines.

    \b
    Examples:
      lemming logs -f
      lemming logs editor -n 3
      lemming logs --since 2h --level warning
      lemming logs --grep circuit --json | jq .event
    """
    base = context.org
    if name is not None:
        require_agent_folder(base, name)
    file = base / (paths.ENGINE_LOG if name is None else paths.activity_log(name))
    start_time = "" if since is None else timestamp(SystemClock().now() - timedelta(seconds=since))
    line_filter = _LineFilter(start_time, _LEVELS[_LEVELS.index(level or "debug") :], grep.casefold())
    lines, end = _read_last_lines(file, number) if line_filter.matches_everything else _read_new_lines(file, 0)
    matching_lines = [line for line in lines if line_filter.matches(line)][-number:] if number else []
    for line in matching_lines:
        _print_line(line, as_json=context.as_json)
    if not matching_lines and not follow:
        print_notice("no matching log lines" if lines else "no log lines yet")
    while follow:
        time.sleep(_POLL_INTERVAL_S)
        lines, end = _read_new_lines(file, end)
        for line in filter(line_filter.matches, lines):
            _print_line(line, as_json=context.as_json)


class _LineFilter(NamedTuple):
    """Filter of log lines: start time, levels, text."""

    start_time: str
    levels: Sequence[str]
    text: str

    @property
    def matches_everything(self) -> bool:
        """True if every line matches."""
        return not self.start_time and len(self.levels) == len(_LEVELS) and not self.text

    def matches(self, raw: bytes) -> bool:
        """Return True if a line matches; a line without a level or a time always passes both filters."""
        line = _parse_line(raw)
        matches_level = line.get("level") in self.levels or line.get("level") not in _LEVELS
        matches_time = str(line.get("timestamp", "9")) >= self.start_time
        return matches_level and matches_time and self.text in raw.decode("utf-8", "replace").casefold()


def _read_last_lines(file: Path, number: int) -> tuple[list[bytes], int]:
    """Return the last complete lines of a file and their end offset."""
    try:
        end = file.stat().st_size
        lines = fs.read_tail(file, _BLOCK_BYTES, number + 1)
    except FileNotFoundError:
        return [], 0
    whole = lines[: lines.rfind(b"\n") + 1]
    return (whole.splitlines()[-number:] if number else []), end - (len(lines) - len(whole))


def _read_new_lines(file: Path, start: int) -> tuple[list[bytes], int]:
    """Return the complete lines after an offset, and the new offset. A truncated file is read from the start."""
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


def _parse_line(raw: bytes) -> dict[str, Any]:
    try:
        line = parse(raw)
    except JsonProblem:
        line = None
    return line if isinstance(line, dict) else {"event": raw.decode("utf-8", "replace")}


def _print_line(raw: bytes, *, as_json: bool) -> None:
    line = _parse_line(raw)
    if as_json:
        print_json("log", line)
    else:
        print_data(_format_line(line))


def _format_line(line: dict[str, Any]) -> str:
    time_text = str(line.get("timestamp", ""))[:19].replace("T", " ")
    tick_text = f"tick {line['tick']}" if "tick" in line else ""
    event = f"{line.get('event', '')} {line.get('status', '')}".rstrip()
    parts = [
        time_text,
        tick_text,
        str(line.get("agent", "")),
        style_text(_format_value(event), _STYLES.get(str(line.get("level")), "plain")),
    ]
    parts += [f"{key}={_format_value(value)}" for key, value in line.items() if _is_shown_field(key, value)]
    return "  ".join(filter(None, parts))


def _is_shown_field(key: str, value: Any) -> bool:
    return key not in _LEADING_FIELDS and value not in ("", None)


def _format_value(value: Any) -> str:
    return one_line(str(value), 300)
