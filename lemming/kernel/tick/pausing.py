"""Whether somebody has paused an agent, or all of them, since the tick began: looked at before each call."""

from __future__ import annotations

import os

from lemming.kernel.agents import RESUME_LIMIT_BYTES, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import pause_reason

_CLOCKS_APART_NS = 2_000_000_000
"""The clock of a file system may be behind that of the process by less."""

_Stamp = tuple[int, int]
"""When a file was changed last, and which it is: one that is put in its place is another."""


class _Opened:
    """The files of an organisation that were opened lately, by agent, and said nothing of a pause."""

    def __init__(self, _: Organisation) -> None:
        self.clear: dict[str, tuple[_Stamp, _Stamp]] = {}


class Pauses:
    """What files say of pauses now. One that has not changed since the tick looked at it is not opened."""

    def __init__(self, org: Organisation, config: Config, survey: Survey, began_ns: int) -> None:
        self._base, self._of_all, self._of_one = str(org.base), config.org.paused, survey.paused
        self._org_file = f"{self._base}/{ORG_FILE}"
        self._since_ns = began_ns - _CLOCKS_APART_NS
        self._clear = org.own(_Opened).clear

    def is_clear(self, agent: str) -> bool:
        """Return whether an agent is not paused: for most it takes two looks to know that."""
        if self._of_all or agent in self._of_one:
            return not self.why(agent)
        try:
            of_all = os.stat(self._org_file)
            own = os.stat(f"{self._base}/{paths.resume_file(agent)}")
        except OSError:
            return not self.why(agent)
        # By ctime: any program can set an mtime back, as copying and unpacking do.
        if of_all.st_ctime_ns < self._since_ns and own.st_ctime_ns < self._since_ns:
            return True
        stamps = (of_all.st_ctime_ns, of_all.st_ino), (own.st_ctime_ns, own.st_ino)
        if self._clear.get(agent) == stamps:
            return True
        if self.why(agent):
            return False
        self._clear[agent] = stamps
        return True

    def why(self, agent: str) -> str:
        """Return how a person is told that an agent is paused; empty when it is not."""
        if text := self._pause_in(ORG_FILE, self._of_all):
            return f"the organisation is {pause_reason(text)}"
        text = self._pause_in(paths.resume_file(agent), self._of_one.get(agent, ""))
        return pause_reason(text) if text else ""

    def _pause_in(self, file: str, before: str) -> str:
        """Return what a file says of a pause; `before`: what it said, which holds while it cannot be read."""
        path = f"{self._base}/{file}"
        try:
            if os.stat(path).st_ctime_ns < self._since_ns:
                return before
            raw = fs.read_bytes(path, RESUME_LIMIT_BYTES)
            found = parse(raw, limit_bytes=RESUME_LIMIT_BYTES, allow_bom=True).get("paused", "")
        except (ValueError, AttributeError):
            return before
        except OSError as error:
            require_about_one_file(path, error)  # else somebody may have paused it: nothing more is paid
            return before
        return found if isinstance(found, str) else before
