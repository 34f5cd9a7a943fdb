"""The screen of log lines: the log of the engine or of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.times import parse_duration
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.queries.screens.screen import OMITTED, Column, Parameter, RowStyle, Screen, ScreenResult

Line = dict[str, Any]
Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = get_args(Level)


def list_log_lines(
    org: OrgPath,
    agent: Annotated[str | None, Parameter("AGENT", "Agent whose log to show. Default: the engine's log.")] = None,
    number: Annotated[int, Parameter("-n --limit N", "Number of lines to show.", minimum=0)] = 20,
    since: Annotated[
        str | None, Parameter("--since DURATION", "Show lines of this period only: 90s, 15m, 2h, 3d.")
    ] = None,
    level: Annotated[Level | None, Parameter("--level", "Show lines of this level and above only.")] = None,
    grep: Annotated[str, Parameter("--grep TEXT", "Show lines that contain this text, ignoring case.")] = "",
) -> ScreenResult:
    """Return the newest lines of the log that match, oldest first."""
    log = LogReader(org, agent, since, level, grep)
    return ScreenResult(log.read_newest(number))


class LogReader:
    """Reads the matching lines of a log, first the newest and then those that are appended."""

    def __init__(self, org: OrgPath, agent: str | None, since: str | None, level: Level | None, grep: str) -> None:
        if agent:
            require_agent_folder(org, agent)
        self._file = Path(org) / (paths.activity_log(agent) if agent else paths.ENGINE_LOG)
        period = parse_duration(f"{since}s" if since.isdecimal() else since) if since else None
        self._start_time = timestamp(SystemClock().now() - period) if period else ""
        self._levels, self._text = _LEVELS[_LEVELS.index(level or "debug") :], grep.casefold()
        self._matches_all = not (since or grep or level not in (None, "debug"))
        self._end = 0

    def read_newest(self, number: int) -> list[Line]:
        """Return the newest matching lines, at most `number`."""
        lines = self._read_lines()
        lines = lines[-number:] if self._matches_all else lines
        return self._select(lines)[-number:] if number else []

    def read_appended(self) -> list[Line]:
        """Return the matching lines since the last call. A truncated file is read from the start."""
        return self._select(self._read_lines())

    def _read_lines(self) -> list[bytes]:
        """Return the complete lines since the last call."""
        try:
            with self._file.open("rb") as stream:
                start = stream.seek(self._end if self._file.stat().st_size >= self._end else 0)
                raw = stream.read()
        except FileNotFoundError:
            return []
        whole = raw[: raw.rfind(b"\n") + 1]
        self._end = start + len(whole)
        return whole.splitlines()

    def _select(self, lines: Iterable[bytes]) -> list[Line]:
        return [line for raw in lines if self._is_match(raw, line := _parse_line(raw))]

    def _is_match(self, raw: bytes, line: Line) -> bool:
        """Return True if a line matches; a line without a level or a time always passes both filters."""
        matches_level = line.get("level") in self._levels or line.get("level") not in _LEVELS
        matches_time = str(line.get("timestamp", "9")) >= self._start_time
        return matches_level and matches_time and self._text in raw.decode("utf-8", "replace").casefold()


def _parse_line(raw: bytes) -> Line:
    return parse_object_or_empty(raw) or {"event": raw.decode("utf-8", "replace")}


def _field(key: str, header: str, about: str, format_field: Callable[[Any], str] = str) -> Column:
    """Return a field that only some lines have."""

    def text(line: Line) -> str:
        return format_field(line[key]) if key in line else ""

    return Column(key, header, about, Any, value=lambda line: line.get(key, OMITTED), text=text, is_optional=True)


_CELLS = ("timestamp", "level", "event", "tick", "agent", "status")


def _describe_event(line: Line) -> str:
    event = f"{line.get('event', '')} {line.get('status', '')}".rstrip()
    fields = (f"{key}={value}" for key, value in line.items() if key not in _CELLS and value not in ("", None))
    return "  ".join((event, *fields))


_STYLES: dict[str, RowStyle] = {"warning": "yellow", "error": "red", "critical": "red"}
LOGS = Screen(
    "logs",
    kind="log",
    title="Logs",
    query=list_log_lines,
    is_table=False,
    is_open=True,
    empty="no log lines",
    style=lambda line: _STYLES.get(str(line.get("level")), "plain"),
    columns=(
        _field("timestamp", "TIME", "Time of the line.", lambda time: str(time)[:19].replace("T", " ")),
        _field("tick", "TICK", "Number of the tick.", lambda tick: f"tick {tick}"),
        _field("agent", "AGENT", "Agent that it is about."),
        Column("event", "EVENT", "What happened.", Any, value=lambda line: line.get("event"), text=_describe_event, width=2000),
    ),
)  # fmt: skip
