"""An organisation as a notebook shows it: a table of its agents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.html_tables import table, text
from lemming.kernel.files import fs
from lemming.kernel.files.documents import read_text
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import AgentSchedule

_HEADS = ("agent", "model", "wakes", "reads", "tools", "does")
_LIMIT_BYTES, _MOST_CHARS = 256 << 10, 160


def organisation_as_html(base: Path) -> str:
    """Return a folder and a table of its agents; one whose resume is broken says what is wrong."""
    names: list[str] = []
    with contextlib.suppress(OSError, DiskError):
        names = sorted(name for name in fs.list_names(base / "agents") if paths.AGENT_NAME.match(name))
    rows = [row for name in names for row in _rows_of(base, name)]
    return f"<p>{text(base)}, agents: {len(rows)}</p>{table(_HEADS, rows)}"


def _rows_of(base: Path, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield the row of an agent; none of a folder without a resume, which is no agent."""
    file = paths.resume_file(name)
    try:
        agent = read_text(
            fs.read_bytes(base / file, _LIMIT_BYTES), file, Agent, limit_bytes=_LIMIT_BYTES
        ).value
    except FileNotFoundError:
        return
    except (OSError, DiskError, ConfigError) as error:
        yield name, "", "broken", "", "", _short(str(error))
        return
    may = agent.permissions
    wakes = "paused" if agent.paused else _rhythm(agent.schedule)
    yield (
        name,
        agent.model.key,
        wakes,
        ", ".join(may.read_outboxes),
        ", ".join(may.tools),
        _short(agent.instructions),
    )


def _rhythm(schedule: AgentSchedule) -> str:
    every = schedule.run_every_n_ticks
    by_clock = schedule.cron or ("every tick" if every == 1 else f"every {every} ticks")
    return f"{by_clock}, if {schedule.wake}" if schedule.wake not in (None, "always") else by_clock


def _short(words: str) -> str:
    return words if len(words) <= _MOST_CHARS else f"{words[:_MOST_CHARS].rstrip()}…"
