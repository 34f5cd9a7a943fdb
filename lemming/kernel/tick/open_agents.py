"""Folders, ledgers and logs of agents that stay open from tick to tick, as long as they stand where they did.

A change of the names in an agent's folder shows in its stamp (`files.stamps`): then all of its are
opened again. Of many agents only some have theirs open, for a process may open so many files.
"""

from __future__ import annotations

import resource
import time
from functools import cached_property

from lemming.kernel.base import paths
from lemming.kernel.files.folder import Folder
from lemming.kernel.files.stamps import Identity, has_rested, identity_of
from lemming.kernel.journal.ledger import OpenLedger
from lemming.kernel.logging_config import LogFile
from lemming.kernel.org.organisation import Organisation

SHARE = 16
"""Of the files that a process may open, this part is the number of agents that have four open."""
MOST_AGENTS = 256


class OpenAgent:
    """One agent's folder, and what is open of it; `identity` tells whether all of it stands as it did."""

    def __init__(self, org: Organisation, name: str, identity: Identity) -> None:
        self._org, self._name, self.identity = org, name, identity
        # A change within the same granule of the clock would not show, so what was opened then is not kept.
        self.stays = has_rested(identity, time.time_ns())

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
        """Close what is open."""
        for opened in vars(self).values():
            if isinstance(opened, Folder | OpenLedger | LogFile):
                opened.close()


class OpenAgents:
    """The agents of an organisation of which files are open."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._base = org, str(org.base)
        self._kept: dict[str, OpenAgent] = {}
        self._most = min(MOST_AGENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE)

    def of(self, agent: str) -> OpenAgent | None:
        """Return an agent as it stands now; None where somebody has removed it."""
        known = self._kept.get(agent)
        try:
            identity = identity_of(f"{self._base}/{paths.agent_folder(agent)}")
        except OSError:
            identity = None
        if known:
            if known.stays and known.identity == identity:
                return known
            self._kept.pop(agent).close()
        if identity is None:
            return None
        if len(self._kept) >= self._most:  # agents take turns in a circle: the newest is needed last
            self._kept.popitem()[1].close()
        opened = self._kept[agent] = OpenAgent(self._org, agent, identity)
        return opened

    def close(self) -> None:
        """Close all that is open; it is opened again when it is needed."""
        while self._kept:
            self._kept.popitem()[1].close()
