"""Whether somebody has paused an agent, or all of them, since the tick began: looked at before each call."""

from __future__ import annotations

import os

from lemming import paths
from lemming.agents import RESUME_LIMIT_BYTES, Survey
from lemming.config import ORG_FILE, Config
from lemming.files import fs
from lemming.files.jsontext import parse
from lemming.organisation import OrgPath
from lemming.tick.plan import said_of_pause

_CLOCKS_APART_NS = 2_000_000_000
"""The clock of a file system may be behind that of the process by less."""


class Pauses:
    """What files say of pauses now. One that has not changed since the tick looked at it is not opened."""

    def __init__(self, base: OrgPath, config: Config, survey: Survey, began_ns: int) -> None:
        self._base, self._of_all, self._of_one = base, config.org.paused, survey.paused
        self._since_ns = began_ns - _CLOCKS_APART_NS
        self._known: dict[str, tuple[int, str]] = {}

    def may_be(self, agent: str) -> bool:
        """Return whether an agent may be paused now: for most it takes two looks to know that it is not."""
        if self._of_all or agent in self._of_one:
            return True
        try:
            changed_ns = os.stat(f"{self._base}/{ORG_FILE}").st_ctime_ns
        except OSError:  # there need not be one
            changed_ns = 0
        try:
            return (
                max(changed_ns, os.stat(f"{self._base}/{paths.resume_file(agent)}").st_ctime_ns)
                >= self._since_ns
            )
        except OSError:
            return True

    def why(self, agent: str) -> str:
        """Return how a person is told that an agent is paused; empty when it is not."""
        if text := self._said(ORG_FILE, self._of_all):
            return f"the organisation is {said_of_pause(text)}"
        text = self._said(paths.resume_file(agent), self._of_one.get(agent, ""))
        return said_of_pause(text) if text else ""

    def _said(self, file: str, before: str) -> str:
        """Return what a file says of a pause; `before`: what it said, which holds while it cannot be read."""
        path = f"{self._base}/{file}"
        try:
            changed_ns = os.stat(path).st_ctime_ns
            if changed_ns < self._since_ns:
                return before
            if (known := self._known.get(file)) is None or known[0] != changed_ns:
                known = self._known[file] = changed_ns, _pause_in(path)
            return known[1]
        except (OSError, ValueError):
            return before


def _pause_in(path: str) -> str:
    plain = parse(fs.read_bytes(path, RESUME_LIMIT_BYTES), limit_bytes=RESUME_LIMIT_BYTES, allow_bom=True)
    found = plain.get("paused", "") if isinstance(plain, dict) else ""
    return found if isinstance(found, str) else ""
