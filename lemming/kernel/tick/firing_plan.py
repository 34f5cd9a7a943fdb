"""Make the plan of a tick from resumes and settings, and look for agents paused since."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lemming.kernel.agents import RESUME_LIMIT_BYTES, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.journal.tick_plan import FOR_A_CHANNEL, FOR_A_PERSON, NOBODY, TickPlan
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import AgentSchedule, is_due
from lemming.kernel.tick_context import TickContext


def make_plan(
    tick: int,
    survey: Survey,
    config: Config,
    *,
    at: str = "",
    since: str = "",
    skipped_agents: Mapping[str, str] = NOBODY,
) -> TickPlan:
    """Return the plan of a tick for the surveyed agents.

    `skipped_agents` take no turn, by decision of capabilities (`tick.tick_hooks`); a non-empty value is an error text.
    """
    skipped = {**find_paused_agents(survey, config), **dict.fromkeys(survey.find_people(config), FOR_A_PERSON)}
    if config.has_channels:
        skipped |= dict.fromkeys(survey.find_channels(config), FOR_A_CHANNEL)
    due = {
        name
        for (every, offset), names in survey.by_schedule.items()
        if is_due(AgentSchedule(run_every_n_ticks=every, phase_offset=offset), tick)
        for name in names
    }
    due.difference_update(skipped_agents)
    faulty = {name: error_text for name, error_text in skipped_agents.items() if error_text}
    due.difference_update(skipped)
    excluded = due | skipped.keys() | faulty.keys()
    broken = {**{name: str(error) for name, error in survey.broken.items()}, **faulty}
    return TickPlan(
        tick=tick,
        order=[name for name in survey.turn_order if name in due] if due else [],
        not_due=[name for name in survey.agents if name not in excluded],
        skipped=dict(sorted(skipped.items())),
        broken=broken,
        at=at,
        since=since,
    )


def find_paused_agents(survey: Survey, config: Config) -> dict[str, str]:
    """Return the paused agents, each with the text shown to a person."""
    if config.org.paused:
        return dict.fromkeys(survey.agents, f"the organisation is {format_pause(config.org.paused)}")
    return {name: format_pause(text) for name, text in survey.paused_agents.items()}


def format_pause(text: str) -> str:
    """Return the text of a plan for a pause.

    >>> format_pause("since 2026-11-22T09:00:00.000Z by ada"), format_pause("too dear")
    ('paused since 2026-11-22T09:00:00.000Z by ada', 'paused: too dear')
    """
    return f"paused {text}" if text.startswith("since ") else f"paused: {text}"


_MAX_CLOCK_SKEW_NS = 2_000_000_000
"""A file system's clock is behind that of the process by less."""

_Stamp = tuple[int, int]
"""A file's time of change and identity; a replacement has another identity."""


class _PauseCache:
    """Files of an organisation opened recently and found without a pause, by agent."""

    def __init__(self, _: Organisation) -> None:
        self.unpaused: dict[str, tuple[_Stamp, _Stamp]] = {}


class PauseCheck:
    """Current pauses according to the files. A file unchanged since the tick began is not opened."""

    def __init__(self, tick_context: TickContext) -> None:
        self._base, self._org_pause = str(tick_context.base), tick_context.config.org.paused
        self._agent_pauses = tick_context.survey.paused_agents
        self._org_file = f"{self._base}/{paths.ORG_FILE}"
        self._since_ns = tick_context.began_ns - _MAX_CLOCK_SKEW_NS
        self._unpaused = tick_context.org.get_cache(_PauseCache).unpaused

    def has_no_pause(self, agent: str) -> bool:
        """Return True if the agent is not paused; usually two `stat` calls suffice."""
        if self._org_pause or agent in self._agent_pauses:
            return not self.pause_reason(agent)
        try:
            org_stat = os.stat(self._org_file)
            resume_stat = os.stat(f"{self._base}/{paths.resume_file(agent)}")
        except OSError:
            return not self.pause_reason(agent)
        # By ctime: any program can set an mtime back, as copying and unpacking do.
        if org_stat.st_ctime_ns < self._since_ns and resume_stat.st_ctime_ns < self._since_ns:
            return True
        identities = (org_stat.st_ctime_ns, org_stat.st_ino), (resume_stat.st_ctime_ns, resume_stat.st_ino)
        if self._unpaused.get(agent) == identities:
            return True
        if self.pause_reason(agent):
            return False
        self._unpaused[agent] = identities
        return True

    def pause_reason(self, agent: str) -> str:
        """Return the text shown to a person about an agent's pause, or an empty text."""
        if text := self._load_pause(paths.ORG_FILE, self._org_pause):
            return f"the organisation is {format_pause(text)}"
        text = self._load_pause(paths.resume_file(agent), self._agent_pauses.get(agent, ""))
        return format_pause(text) if text else ""

    def _load_pause(self, file: str, previous: str) -> str:
        """Return the pause text in a file; an unreadable file keeps its text from before, `previous`."""
        path = f"{self._base}/{file}"
        try:
            if os.stat(path).st_ctime_ns < self._since_ns:
                return previous
            raw = fs.read_bytes(path, RESUME_LIMIT_BYTES)
            pause = parse(raw, limit_bytes=RESUME_LIMIT_BYTES, allow_bom=True).get("paused", "")
        except (ValueError, AttributeError):
            return previous
        except OSError as error:
            require_about_one_file(path, error)  # else it may be paused: nothing more is paid
            return previous
        return pause if isinstance(pause, str) else previous
