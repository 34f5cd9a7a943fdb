"""HTML view of an organisation for notebooks: a table of its agents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.html_tables import escape_cell, render_table
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import parse_document
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import AgentSchedule

_COLUMNS = ("agent", "model", "wakes", "reads", "tools", "does")
_LIMIT_BYTES, _MAX_CHARS = 256 << 10, 160


def organisation_as_html(base: Path) -> str:
    """Return a heading with the folder, and a table of the agents; a broken resume is shown with the error."""
    names: list[str] = []
    with contextlib.suppress(OSError, DiskError):
        names = sorted(name for name in fs.list_names(base / "agents") if paths.AGENT_NAME.match(name))
    rows = [row for name in names for row in _agent_row(base, name)]
    return f"<p>{escape_cell(base)}, agents: {len(rows)}</p>{render_table(_COLUMNS, rows)}"


def _agent_row(base: Path, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield the row of an agent; no row for a folder without a resume."""
    file = paths.resume_file(name)
    try:
        agent = parse_document(fs.read_bytes(base / file, _LIMIT_BYTES), file, Agent, limit_bytes=_LIMIT_BYTES).value
    except FileNotFoundError:
        return
    except (OSError, DiskError, ConfigError) as error:
        yield name, "", "broken", "", "", _shorten(str(error))
        return
    permissions = agent.permissions
    wakes = "paused" if agent.paused else _describe_schedule(agent.schedule)
    yield (
        name,
        agent.model.key,
        wakes,
        ", ".join(permissions.read_outboxes),
        ", ".join(permissions.tools),
        _shorten(agent.instructions),
    )


def _describe_schedule(schedule: AgentSchedule) -> str:
    every = schedule.run_every_n_ticks
    by_clock = schedule.cron or ("every tick" if every == 1 else f"every {every} ticks")
    return f"{by_clock}, if {schedule.wake}" if schedule.wake not in (None, "always") else by_clock


def _shorten(content: str) -> str:
    return content if len(content) <= _MAX_CHARS else f"{content[:_MAX_CHARS].rstrip()}…"
