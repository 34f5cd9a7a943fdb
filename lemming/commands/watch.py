"""`lemming watch`: the organisation in one terminal screen, live."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from lemming.commands.options import Here
from lemming.commands.screen import (
    Style,
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_json,
    whole_screen,
)
from lemming.commands.stopping import StopSwitch, stop_on_signals
from lemming.facts.views.dispatch import view
from lemming.facts.views.position import position_of
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.times.words import until_text
from lemming.kernel.org.organisation import Organisation

Json = dict[str, Any]

LOOK_S = 1.0
WAITING_SHOWN, TROUBLES_SHOWN = 6, 3
PRINTED_LINES = 60
_STATES: dict[str, Style] = {
    "working": "green", "failing": "red", "broken": "red", "interrupted": "red", "waits": "yellow",
    "paused": "yellow", "out_of_credits": "yellow",
}  # fmt: skip


def watch(here: Here) -> None:
    """Show the organisation in one terminal screen, live: where it stands, what waits for you, what each
    agent does or why not, and what was said last.

    Works from files alone, while an engine runs and while none does. `q` ends it. Into a pipe or a file it
    prints once what it would show.

    \b
    Examples:
      lemming watch
      lemming watch | head -20
      lemming watch --json | jq .header.state
    """
    org = Organisation(here.org)
    if here.as_json:
        show_json("watch", shown_of(org, PRINTED_LINES))
    elif not sys.stdout.isatty():
        for line in lines_of(shown_of(org, PRINTED_LINES), 160, PRINTED_LINES):
            show(line)
    else:
        with stop_on_signals(quiet=True) as switch, _keys() as keyboard, whole_screen() as draw:
            position, size = "", os.terminal_size((0, 0))
            while not switch.stop.is_set():
                now, now_size = position_of(org), shutil.get_terminal_size()
                if (now, now_size) != (position, size):
                    position, size = now, now_size
                    shown = shown_of(org, size.lines)
                draw(lines_of(shown, size.columns, size.lines))
                if _is_over(switch, keyboard):
                    return


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Have the terminal give keys as they are pressed, unseen, for a block; None where there is none."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    former = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, former)


def _is_over(switch: StopSwitch, keyboard: int | None) -> bool:
    """Wait until it is time for another look; return whether somebody has pressed q, or gone away."""
    if keyboard is None:
        return switch.stop.wait(LOOK_S)
    ready, _, _ = select.select([keyboard], [], [], LOOK_S)
    pressed = os.read(keyboard, 64) if ready else b" "
    return not pressed or b"q" in pressed.lower()


def shown_of(org: Organisation, lines: int) -> Json:
    """Return what a screen of so many lines shows, as the page has it; of what is broken the head tells."""
    shown: Json = {"header": view(org, "header"), **_NOTHING}
    with contextlib.suppress(LemmingError):
        shown["agents"] = view(org, "agents", {"limit": str(lines)})
        shown["waiting"] = view(org, "waiting")
        shown["feed"] = view(org, "feed", {"limit": str(lines)})
    return shown


_NOTHING: Json = {
    "waiting": {"people": [], "items": []},
    "agents": {"total": 0, "tick": 0, "rows": []},
    "feed": {"entries": []},
}


def lines_of(shown: Json, width: int, lines: int) -> list[str]:
    """Return a screen: the head, what waits, the agents, and with the rest of the lines what was said."""
    screen = [*_head(shown["header"], width), *_waiting(shown["waiting"]["items"], width)]
    room = max(lines - len(screen) - 5, 4)
    agents, entries = shown["agents"], shown["feed"]["entries"]
    most = min(len(agents["rows"]), max(room // 2, room - 1 - len(entries)))
    rest = agents["total"] - most
    told = f"AGENTS  {agents['total']}" + (
        f", of whom {rest} are not shown: lemming status" if rest > 0 else ""
    )
    screen += [painted(_fit(told, width), "bold"), painted(_columns(width), "dim")]
    screen += [_agent(row, width) for row in agents["rows"][:most]]
    screen += ["", painted(_fit("SAID, newest first; older: lemming outbox NAME", width), "bold")]
    screen += [painted(f"  {'tick':>6}  {'who':<16} {'kind':<9} text"[:width], "dim")]
    screen += [_entry(entry, width) for entry in entries[: max(lines - len(screen), 1)]]
    return screen[:lines]


def _head(header: Json, width: int) -> Iterator[str]:
    state = header["state"]
    name = header["org"].rstrip("/").rpartition("/")[2]
    tick = "" if header["tick"] is None else f"tick {header['tick']}"
    doing = "not running" if state == "stopped" else state
    told = _fit(f"{tick} {doing}: {header['why']}", width - len(name) - 2)
    yield f"{painted(_fit(name, width), 'bold')}  {painted(told, _STATES.get(state, 'plain'))}"
    parts = [f"{header['waiting']} waiting for you"]
    if spent := header["spent"]:
        of = "" if spent["max"] is None else f" of {spent['max']:g}"
        used_up = f", {spent['used_up']:g}{of} used up" if of and spent["used_up"] != spent["credits"] else ""
        dollars = None if spent["unpriced"] and not spent["dollars"] else spent["dollars"]
        credits = f"{spent['credits']:g}{'' if used_up else of} credits{used_up}"
        parts.append(f"{credits}, {in_dollars(dollars, unpriced=spent['unpriced'])}")
    if header["next_at"]:
        parts.append(f"next {until_text(parse_timestamp(header['next_at']), SystemClock().now())}")
    troubles = header["troubles"]
    parts.append(counted(len(troubles), "trouble") if troubles else "well")
    yield _fit(" · ".join(parts), width)
    for trouble in troubles[:TROUBLES_SHOWN]:
        yield painted("  " + _fit(f"{trouble['about']}: {trouble['text']}", width - 2), "red")
    if len(troubles) > TROUBLES_SHOWN:
        yield painted(f"  and {len(troubles) - TROUBLES_SHOWN} more: lemming status", "dim")
    yield ""


def _waiting(items: list[Json], width: int) -> Iterator[str]:
    if not items:
        return
    yield painted(_fit("WAITS FOR YOU", width), "bold")
    for item in items[:WAITING_SHOWN]:
        yield painted("  " + _fit(f"{item['id']} {item['line']}", width - 2), "yellow")
    if len(items) > WAITING_SHOWN:
        yield painted(f"  and {len(items) - WAITING_SHOWN} more: lemming waiting", "dim")
    yield ""


def _columns(width: int) -> str:
    """Return the names of the columns of agents."""
    room = width - 52
    more = f" {'why, or last words':<{room}} {'credits':>14}" if room > 18 else ""
    return f"  {'name':<16} {'now':<15}{more}"[:width]


def _agent(row: Json, width: int) -> str:
    state, room = row["state"], width - 52
    words = row["text"] or (row["last"]["text"] if row.get("last") else "")
    spent = "" if row.get("credits") is None else f"{row['credits']:g}"
    if row.get("max_credits") is not None:
        spent += f" of {row['max_credits']:g}"
    doing = painted(_fit(state.replace("_", " "), 15).ljust(15), _STATES.get(state, "plain"))
    more = f" {_fit(words, room):<{room}} {_fit(spent, 14):>14}" if room > 0 else ""
    return f"  {_fit(row['name'], 16):<16} {doing}{more}"


def _entry(entry: Json, width: int) -> str:
    head = f"  {entry['tick']:>6}  {_fit(entry['agent'], 16):<16} {entry['kind']:<9} "
    return head + _fit(entry["text"] or entry["says"], width - len(head))


def _fit(text: str, width: int) -> str:
    return one_line(text, max(width, 1))
