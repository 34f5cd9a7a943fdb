"""The tool `keep_job`: scheduled jobs of an agent, stored in the memory `calendar`."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice, pairwise
from typing import Annotated, Any

from lemming.capabilities.calendars.calendar_file import load_calendar
from lemming.capabilities.calendars.calendar_jobs import MEMORY, TOOL, parse_agent_job
from lemming.ext import describe_field
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.memory import decode_memory, load_memory, make_memory_effect
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.cron_expressions import describe_cron, iter_occurrences

MAX_COMPARED = 50


class KeepJobTool(EngineTool):
    """Creates, changes or drops a job of the agent."""

    name = TOOL
    description = "Be asked for something at certain times, as a request of the calendar; without text, drop that job."
    tool_class = "write"
    keeps_deadline = True
    success_is_news = False

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, describe_field("A short name for the job.", min_length=1, max_length=60)],
        cron: Annotated[str, describe_field('When: "0 9 * * mon-fri", or @daily, @weekly. In your time zone.')] = "",
        text: Annotated[str, describe_field("What you want to be asked then.", max_length=10_000)] = "",
    ) -> ToolResult:
        """Return the effect that stores the job in the agent's memory."""
        limits = load_calendar(context.org).agents
        jobs = _current_jobs(context)
        if not text:
            if jobs.pop(name, None) is None:
                raise ToolError(f'{self.name}: no job "{name}"', hint=_listing_hint(jobs))
            return ToolResult(True, f'"{name}" is dropped', (_memory_effect(context, jobs),))
        zone_name = context.agent.schedule.timezone or context.settings.timezone or "UTC"
        job_json = {"cron": cron, "text": text, "timezone": zone_name}
        try:
            parse_agent_job(context.agent.name, job_json)
        except (ValueError, TypeError) as error:
            raise ToolError(f"{self.name}: {error}") from error
        _require_room(jobs, name, limits.max_jobs)
        _require_minimum_interval(context, job_json, limits.min_minutes)
        effect = _memory_effect(context, {**jobs, name: job_json})
        return ToolResult(True, f'"{name}": {describe_cron(cron)} ({job_json["timezone"]})', (effect,))


def _current_jobs(context: ToolContext) -> dict[str, Any]:
    file = paths.memory_file(context.agent.name, MEMORY)
    if file in context.staged:
        jobs = decode_memory(context.staged[file], file)
    else:
        jobs = load_memory(context.base, context.agent.name, MEMORY, {})
    return dict(jobs) if isinstance(jobs, dict) else {}


def _memory_effect(context: ToolContext, jobs: dict[str, Any]) -> FileEffect:
    return make_memory_effect(context.agent.name, MEMORY, dict(sorted(jobs.items())), context.now)


def _require_room(jobs: dict[str, Any], name: str, max_jobs: int) -> None:
    if name not in jobs and len(jobs) >= max_jobs:
        raise ToolError(f"{TOOL}: you may keep {max_jobs} jobs", hint=f"drop one: {_listing_hint(jobs)}")


def _listing_hint(jobs: dict[str, Any]) -> str:
    """Return a hint about the agent's job names, unquoted: others' text would look like a message of the engine."""
    return f'memory_read with the key "{MEMORY}" shows all {len(jobs)}' if jobs else "you keep none"


def _require_minimum_interval(context: ToolContext, plain: dict[str, str], minutes: float) -> None:
    times = iter_occurrences(plain["cron"], plain["timezone"], parse_timestamp(context.now))
    min_interval = timedelta(minutes=minutes)
    if any(later - earlier < min_interval for earlier, later in pairwise(islice(times, MAX_COMPARED))):
        raise ToolError(f"{TOOL}: that is more often than every {minutes:g} minutes")
