"""`keep_job`: work that an agent gives itself at certain times, kept in its memory `calendar`."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice, pairwise
from typing import Annotated, Any

from lemming.capabilities.calendars.calendar import load_calendar
from lemming.capabilities.calendars.jobs import MEMORY, TOOL, job_of
from lemming.capabilities.cron.expressions import explained, occurrences
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fitting import about
from lemming.kernel.memory import decode_memory, load_memory, memory_effect
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.context import ToolContext

MOMENTS_COMPARED = 50


class KeepJob(EngineTool):
    """Keeps, changes or drops a job of the agent's own."""

    name = TOOL
    description = (
        "Be asked for something at certain times, as a request of the calendar; without text, drop that job."
    )
    tool_class = "write"
    keeps_deadline = True
    success_is_news = False

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, about("A short name for the job.", min_length=1, max_length=60)],
        cron: Annotated[str, about('When: "0 9 * * mon-fri", or @daily, @weekly. In your time zone.')] = "",
        text: Annotated[str, about("What you want to be asked then.", max_length=10_000)] = "",
    ) -> ToolResult:
        """Return the effect that keeps the job among those of the agent."""
        limits = load_calendar(context.org).agents
        jobs = _kept(context)
        if not text:
            if jobs.pop(name, None) is None:
                raise ToolError(f'{self.name}: no job "{name}"', hint=_where_to_look(jobs))
            return ToolResult(True, f'"{name}" is dropped', (_effect(context, jobs),))
        zone_name = context.agent.schedule.timezone or context.settings.timezone or "UTC"
        plain = {"cron": cron, "text": text, "timezone": zone_name}
        try:
            job_of(context.agent.name, plain)
        except (ValueError, TypeError) as error:
            raise ToolError(f"{self.name}: {error}") from error
        _require_room(jobs, name, limits.max_jobs)
        _require_seldom(context, plain, limits.min_minutes)
        effect = _effect(context, {**jobs, name: plain})
        return ToolResult(True, f'"{name}": {explained(cron)} ({plain["timezone"]})', (effect,))


def _kept(context: ToolContext) -> dict[str, Any]:
    """Return the agent's jobs, as this turn has them."""
    file = paths.memory_file(context.agent.name, MEMORY)
    if file in context.staged:
        kept = decode_memory(context.staged[file], file)
    else:
        kept = load_memory(context.base, context.agent.name, MEMORY, {})
    return dict(kept) if isinstance(kept, dict) else {}


def _effect(context: ToolContext, jobs: dict[str, Any]) -> FileEffect:
    return memory_effect(context.agent.name, MEMORY, dict(sorted(jobs.items())), context.now)


def _require_room(jobs: dict[str, Any], name: str, most: int) -> None:
    if name not in jobs and len(jobs) >= most:
        raise ToolError(f"{TOOL}: you may keep {most} jobs", hint=f"drop one: {_where_to_look(jobs)}")


def _where_to_look(jobs: dict[str, Any]) -> str:
    """Return the place from which the names of jobs are read.

    They are not quoted: a turn would be told what others made the agent keep as if the engine said it.
    """
    return f'memory_read with the key "{MEMORY}" shows all {len(jobs)}' if jobs else "you keep none"


def _require_seldom(context: ToolContext, plain: dict[str, str], minutes: float) -> None:
    """Raise `ToolError` for a job that comes up more often than it may."""
    moments = occurrences(plain["cron"], plain["timezone"], parse_timestamp(context.now))
    least = timedelta(minutes=minutes)
    if any(later - earlier < least for earlier, later in pairwise(islice(moments, MOMENTS_COMPARED))):
        raise ToolError(f"{TOOL}: that is more often than every {minutes:g} minutes")
