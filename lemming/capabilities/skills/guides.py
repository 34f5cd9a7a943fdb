"""`AGENTS.md`: what the people of an organisation tell agents of any kind, read where it lies.

That of the organisation's folder comes first, that of the agent's own folder after it, so that the nearer one
has the last word (agents.md). Only for agents whose resume says `"guides": true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.skills.settings import has_guides
from lemming.kernel.access.allowed_paths import kept_at
from lemming.kernel.access.open import is_there_to_read, read_text
from lemming.kernel.base import paths
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.org.resume import Agent

GUIDE_CHARS = 20_000


class Guide(NamedTuple):
    """One of them: its path in the organisation, and its whole text."""

    file: str
    text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hex."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def section(self) -> str:
        """What a prompt says of it, cut to `GUIDE_CHARS` characters."""
        text = self.text.strip()
        more = (
            f"\n[cut: the first {GUIDE_CHARS} of {len(text)} characters]" if len(text) > GUIDE_CHARS else ""
        )
        return f"# Instructions from {self.file}\n{text[:GUIDE_CHARS]}{more}"


def guide_files(agent: Agent) -> list[str]:
    """Return where the guides of an agent may lie, the nearest last; none for one that is given none."""
    return [GUIDE, f"{paths.agent_folder(agent.name)}/{GUIDE}"] if has_guides(agent) else []


def read_guides(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> list[Guide]:
    """Return the guides that are there and say anything.

    Raises `ToolError` for one that cannot be read: a link, a folder, no text, beyond 256 KiB.
    """
    places = [kept_at(base, file, caller="guides") for file in guide_files(agent)]
    there = [place for place in places if is_there_to_read(place, staged)]
    found = [Guide(place.relative, read_text(place, staged)) for place in there]
    return [guide for guide in found if guide.text.strip()]
