"""`AGENTS.md`: an organisation's guidance for agents of any kind, read in place.

The guide in the organisation's folder comes first, and the guide in the agent's own folder last: the nearest
guide has precedence (agents.md). Only for agents with `"guides": true` in the resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.skills.skills_settings import has_guides
from lemming.kernel.access.agent_files import is_readable, read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.base import paths
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.org.resume import Agent

GUIDE_CHARS = 20_000


class Guide(NamedTuple):
    """A guide: its path in the organisation, and its whole text."""

    file: str
    text: str

    @property
    def sha256_hex(self) -> str:
        """The SHA-256 of the text, in hex."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def to_prompt_section(self) -> str:
        """The guide as a prompt section, truncated to `GUIDE_CHARS` characters."""
        text = self.text.strip()
        suffix = f"\n[cut: the first {GUIDE_CHARS} of {len(text)} characters]" if len(text) > GUIDE_CHARS else ""
        return f"# Instructions from {self.file}\n{text[:GUIDE_CHARS]}{suffix}"


def list_guide_files(agent: Agent) -> list[str]:
    """Return the possible paths of an agent's guides, the nearest last. Empty if guides are disabled."""
    return [GUIDE, f"{paths.agent_folder(agent.name)}/{GUIDE}"] if has_guides(agent) else []


def load_guides(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> list[Guide]:
    """Return existing nonempty guides. Raises `ToolError` for a link, a folder, a binary file or over 256 KiB."""
    paths_ = [resolve_org_path(base, file, caller="guides") for file in list_guide_files(agent)]
    existing = [path for path in paths_ if is_readable(path, staged)]
    guides = [Guide(path.relative, read_text(path, staged)) for path in existing]
    return [guide for guide in guides if guide.text.strip()]
