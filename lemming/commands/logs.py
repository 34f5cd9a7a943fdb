"""`lemming logs`: the engine's log, or an agent's, for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from lemming.commands.options import Here, argument, duration, option, require_folder
from lemming.commands.screen import Style, one_line, painted, show, show_json, tell
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs

_BLOCK_BYTES = 64 << 10
_LOOK_EVERY_S = 0.5
_STYLES: dict[str, Style] = {"warning": "yellow", "error": "red", "critical": "red"}
Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = get_args(Level)
_SHOWN_FIRST = ("timestamp", "level", "event", "tick", "agent", "status")


def logs(
    here: Here,
    name: Annotated[
        str | None, argument("AGENT", "An agent's name; without one, the engine's log.", of_agents=True)
    ] = None,
    number: Annotated[int, option("-n --limit N", "How many lines.", min=0)] = 20,
    follow: Annotated[bool, option("-f --follow", "Go on as lines are added; Ctrl-C ends it.")] = False,
    since: Annotated[
        float | None, option("--since DURATION", "Only of the last 90s, 15m, 2h, 3d.", parser=duration)
    ] = None,
    level: Annotated[Level | None, option("--level", "Only lines of this level and above.")] = None,
    grep: Annotated[str, option("--grep TEXT", "Only lines that hold this text, in whatever case.")] = "",
) -> None:
    """Show the newest lines of the engine's log, or of an agent's.

    With --since, --level or --grep only those that match.

    \b
    Examples:
      lemming logs -f
      lemming logs editor -n 3
      lemming logs --since 2h --level warning
      lemming logs --grep circuit --json | jq .event
    """
    base = here.org
    if name is not None:
        require_folder(base, name)
    file = base / (paths.ENGINE_LOG if name is None else paths.activity_log(name))
    after = "" if since is None else timestamp(SystemClock().now() - timedelta(seconds=since))
    wanted = _Wanted(after, _LEVELS[_LEVELS.index(level or "debug") :], grep.casefold())
    lines, end = _newest(file, number) if wanted.is_anything else _added(file, 0)
    shown = [line for line in lines if wanted.has(line)][-number:] if number else []
    for line in shown:
        _show_line(line, as_json=here.as_json)
    if not shown and not follow:
        tell("nothing of that is logged" if lines else "nothing logged yet")
    while follow:
        time.sleep(_LOOK_EVERY_S)
        lines, end = _added(file, end)
        for line in filter(wanted.has, lines):
            _show_line(line, as_json=here.as_json)


class _Wanted(NamedTuple):
    """Which lines are shown: those after a moment, of these levels, that hold a text."""

    after: str
    levels: Sequence[str]
    text: str

    @property
    def is_anything(self) -> bool:
        """Whether every line is."""
        return not self.after and len(self.levels) == len(_LEVELS) and not self.text

    def has(self, raw: bytes) -> bool:
        """Return whether a line is wanted; one that does not say its level or its time is."""
        line = _as_line(raw)
        is_of_level = line.get("level") in self.levels or line.get("level") not in _LEVELS
        is_after = str(line.get("timestamp", "9")) >= self.after
        return is_of_level and is_after and self.text in raw.decode("utf-8", "replace").casefold()


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


def _as_line(raw: bytes) -> dict[str, Any]:
    try:
        line = parse(raw)
    except JsonProblem:
        line = None
    return line if isinstance(line, dict) else {"event": raw.decode("utf-8", "replace")}


def _show_line(raw: bytes, *, as_json: bool) -> None:
    line = _as_line(raw)
    if as_json:
        show_json("log", line)
    else:
        show(_rendered(line))


def _rendered(line: dict[str, Any]) -> str:
    when = str(line.get("timestamp", ""))[:19].replace("T", " ")
    place = f"tick {line['tick']}" if "tick" in line else ""
    event = f"{line.get('event', '')} {line.get('status', '')}".rstrip()
    words = [
        when,
        place,
        str(line.get("agent", "")),
        painted(_plain(event), _STYLES.get(str(line.get("level")), "plain")),
    ]
    words += [f"{key}={_plain(value)}" for key, value in line.items() if _is_worth_a_word(key, value)]
    return "  ".join(filter(None, words))


def _is_worth_a_word(key: str, value: Any) -> bool:
    return key not in _SHOWN_FIRST and value not in ("", None)


def _plain(value: Any) -> str:
    return one_line(str(value), 300)
