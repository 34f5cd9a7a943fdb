"""Check before each call for a pause, of an agent or of all agents, set since the tick began."""

from __future__ import annotations

import os

from lemming.kernel.agents import RESUME_LIMIT_BYTES, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import format_pause

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

    def __init__(self, org: Organisation, config: Config, survey: Survey, began_ns: int) -> None:
        self._base, self._org_pause, self._agent_pauses = (str(org.base), config.org.paused, survey.paused_agents)
        self._org_file = f"{self._base}/{ORG_FILE}"
        self._since_ns = began_ns - _MAX_CLOCK_SKEW_NS
        self._unpaused = org.get_cache(_PauseCache).unpaused

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
        if text := self._load_pause(ORG_FILE, self._org_pause):
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
