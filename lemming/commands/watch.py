"""`lemming status --watch`: a live status screen in the terminal."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from lemming.commands.command_context import CommandContext
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import (
    Style,
    align_columns,
    format_count,
    format_usd,
    one_line,
    open_full_screen,
    print_data,
    print_json,
    style_text,
)
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.everyday_times import format_remaining_time
from lemming.queries.views.change_token import compute_change_token
from lemming.queries.views.view_registry import build_view

Json = dict[str, Any]

_REFRESH_INTERVAL_S = 1.0
_MAX_WAITING_SHOWN, _MAX_ISSUES_SHOWN = 6, 3
_LINES_WITHOUT_TERMINAL = 60
_STATE_STYLES: dict[str, Style] = {
    "working": "green", "failing": "red", "broken": "red", "interrupted": "red", "waits": "yellow",
    "paused": "yellow", "out_of_credits": "yellow",
}  # fmt: skip


def show_live_screen(context: CommandContext) -> None:
    """Show the status, what waits, agents and the latest entries until `q`.

    The screen works from files alone, with or without a running engine. Without a terminal it is printed once.
    """
    org = Organisation(context.org)
    if context.as_json:
        print_json("watch", build_screen_data(org, _LINES_WITHOUT_TERMINAL))
    elif not sys.stdout.isatty():
        for line in render_screen(build_screen_data(org, _LINES_WITHOUT_TERMINAL), 160, _LINES_WITHOUT_TERMINAL):
            print_data(line)
    else:
        with stop_on_signals(quiet=True) as switch, _open_keyboard() as keyboard, open_full_screen() as draw:
            position, size = "", os.terminal_size((0, 0))
            while not switch.stop.is_set():
                new_position, new_size = compute_change_token(org), shutil.get_terminal_size()
                if (new_position, new_size) != (position, size):
                    position, size = new_position, new_size
                    data = build_screen_data(org, size.lines)
                draw(render_screen(data, size.columns, size.lines))
                if keyboard is None:
                    switch.stop.wait(_REFRESH_INTERVAL_S)
                elif select.select([keyboard], [], [], _REFRESH_INTERVAL_S)[0]:
                    pressed = os.read(keyboard, 64)
                    if not pressed or b"q" in pressed.lower():  # nothing: the terminal was closed
                        return


@contextlib.contextmanager
def _open_keyboard() -> Iterator[int | None]:
    """Read keys without echo while the block runs; yield None if standard input is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    saved_mode = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, saved_mode)


def build_screen_data(org: Organisation, lines: int) -> Json:
    """Build the data of a screen of `lines` lines; a broken organisation gets a header only."""
    data: Json = {"header": build_view(org, "header"), **_EMPTY_DATA}
    with contextlib.suppress(LemmingError):
        data["agents"] = build_view(org, "agents", {"limit": str(lines)})
        data["waiting"] = build_view(org, "waiting")
        data["feed"] = build_view(org, "feed", {"limit": str(lines)})
    return data


_EMPTY_DATA: Json = {
    "waiting": {"people": [], "items": []}, "agents": {"total": 0, "tick": 0, "rows": []}, "feed": {"entries": []},
}  # fmt: skip


def render_screen(data: Json, width: int, lines: int) -> list[str]:
    """Render the screen: header, waiting items, agents, and the latest entries in the remaining lines."""
    screen, items = [*_render_header(data["header"], width)], data["waiting"]["items"]
    screen += [style_text(_truncate("WAITING FOR YOU", width), "bold")] if items else []
    for item in items[:_MAX_WAITING_SHOWN]:
        screen.append(style_text("  " + _truncate(f"{item['id']} {item['line']}", width - 2), "yellow"))
    if len(items) > _MAX_WAITING_SHOWN:
        screen.append(style_text(f"  and {len(items) - _MAX_WAITING_SHOWN} more: lemming waiting", "dim"))
    screen += [""] if items else []
    free_lines = max(lines - len(screen) - 5, 4)
    agents, entries = data["agents"], data["feed"]["entries"]
    rows = agents["rows"][: max(free_lines // 2, free_lines - 1 - len(entries))]
    hidden = agents["total"] - len(rows)
    heading = f"AGENTS  {agents['total']}{f', {hidden} not shown: lemming status' if hidden > 0 else ''}"
    screen.append(style_text(_truncate(heading, width), "bold"))
    cells = []
    for row in rows:
        last_text = row["last"]["text"] if row.get("last") else ""
        limit = "" if row.get("max_credits") is None else f" of {row['max_credits']:.10g}"
        spent = "" if row.get("credits") is None else f"{row['credits']:.10g}{limit}"
        cells.append([row["name"], row["label"], row["text"] or str(last_text), spent])
    styles = [_STATE_STYLES.get(row["state"], "plain") for row in rows]
    screen += _render_table(["name", "now", "reason, or last entry", "credits"], cells, styles, width)
    screen += ["", style_text(_truncate("FEED, newest first; older entries: lemming outbox NAME", width), "bold")]
    entries = entries[: max(lines - len(screen) - 1, 1)]
    cells = [[str(entry["tick"]), entry["agent"], entry["kind"], entry["text"] or entry["says"]] for entry in entries]
    screen += _render_table(["tick", "who", "kind", "text"], cells, ["plain"] * len(cells), width)
    return screen[:lines]


def _render_table(headings: list[str], rows: list[list[str]], styles: list[Style], width: int) -> Iterator[str]:
    aligned = align_columns([headings, *rows], width=max(width - 2, 1))
    for line, style in zip(aligned, ("dim", *styles), strict=True):
        yield style_text(f"  {line}", style)


def _render_header(header: Json, width: int) -> Iterator[str]:
    state = header["state"]
    name = header["org"].rstrip("/").rpartition("/")[2]
    tick = "" if header["tick"] is None else f"tick {header['tick']}"
    activity = "not running" if state == "stopped" else state
    state_text = _truncate(f"{tick} {activity}: {header['why']}", width - len(name) - 2)
    yield f"{style_text(_truncate(name, width), 'bold')}  {style_text(state_text, _STATE_STYLES.get(state, 'plain'))}"
    parts = [f"{header['waiting']} waiting for you"]
    if spent := header["spent"]:
        limit_text = "" if spent["max"] is None else f" of {spent['max']:.10g}"
        has_other = limit_text and spent["used_up"] != spent["credits"]
        used_up = f", {spent['used_up']:.10g}{limit_text} used up" if has_other else ""
        dollars = None if spent["unpriced"] and not spent["dollars"] else spent["dollars"]
        credits = f"{spent['credits']:.10g}{'' if used_up else limit_text} credits{used_up}"
        parts.append(f"{credits}, {format_usd(dollars, unpriced=spent['unpriced'])}")
    if header["next_at"]:
        parts.append(f"next {format_remaining_time(parse_timestamp(header['next_at']), SystemClock().now())}")
    issues = header["troubles"]
    parts.append(format_count(len(issues), "trouble") if issues else "well")
    yield _truncate(" · ".join(parts), width)
    for issue in issues[:_MAX_ISSUES_SHOWN]:
        yield style_text("  " + _truncate(f"{issue['about']}: {issue['text']}", width - 2), "red")
    if len(issues) > _MAX_ISSUES_SHOWN:
        yield style_text(f"  and {len(issues) - _MAX_ISSUES_SHOWN} more: lemming status", "dim")
    yield ""


def _truncate(text: str, width: int) -> str:
    return one_line(text, max(width, 1))
