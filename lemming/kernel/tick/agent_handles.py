"""Cache of open folders, ledgers and logs of agents across ticks.

A change of names in an agent's folder shows in its file identity (`files.stat_cache`); all handles of the
agent are then reopened. Only some agents are cached, because a process has a limited number of open files.
"""

from __future__ import annotations

import resource
import time
from functools import cached_property

from lemming.kernel.base import paths
from lemming.kernel.files.safe_folder import Folder
from lemming.kernel.files.stat_cache import Identity, file_identity, has_stable_mtime
from lemming.kernel.journal.ledger import OpenLedger
from lemming.kernel.logging_config import LogFile
from lemming.kernel.org.organisation import Organisation

SHARE = 16
"""Divides the limit of open files of the process: each agent keeps four files open."""
MAX_AGENTS = 256


class AgentHandles:
    """Open handles of an agent's folder; valid while the folder's `identity` is unchanged."""

    def __init__(self, org: Organisation, name: str, identity: Identity) -> None:
        self._org, self._name, self.identity = org, name, identity
        # A change within the same granule of the clock is invisible: handles opened then are not kept.
        self.is_cacheable = has_stable_mtime(identity, time.time_ns())

    @cached_property
    def outbox(self) -> Folder:
        """The agent's outbox."""
        return Folder(self._org.base, paths.outbox_folder(self._name))

    @cached_property
    def memory(self) -> Folder:
        """The agent's memory."""
        return Folder(self._org.base, paths.memory_folder(self._name))

    @cached_property
    def ledger(self) -> OpenLedger:
        """The agent's ledger."""
        return OpenLedger(self._org, self._name)

    @cached_property
    def log(self) -> LogFile:
        """The agent's activity log."""
        return LogFile(self._org.base, paths.activity_log(self._name))

    def close(self) -> None:
        """Close all handles."""
        for handle in vars(self).values():
            if isinstance(handle, Folder | OpenLedger | LogFile):
                handle.close()


class AgentHandleCache:
    """Open handles of an organisation's agents, up to a maximum number."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base = org, str(org.base)
        self._handles: dict[str, AgentHandles] = {}
        self._max_agents = min(MAX_AGENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE)

    def get_handles(self, agent: str) -> AgentHandles | None:
        """Return the open handles of an agent, or None for a removed agent."""
        cached = self._handles.get(agent)
        try:
            identity = file_identity(f"{self._base}/{paths.agent_folder(agent)}")
        except OSError:
            identity = None
        if cached:
            if cached.is_cacheable and cached.identity == identity:
                return cached
            self._handles.pop(agent).close()
        if identity is None:
            return None
        if len(self._handles) >= self._max_agents:  # agents come round in order: the newest is needed last
            self._handles.popitem()[1].close()
        handles = self._handles[agent] = AgentHandles(self._org, agent, identity)
        return handles

    def close(self) -> None:
        """Close all handles; a later call reopens them."""
        while self._handles:
            self._handles.popitem()[1].close()
