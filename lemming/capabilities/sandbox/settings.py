"""The block `shell` of `config/org.json`: how commands are confined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """How the shell tool is confined."""

    sandbox: Literal["auto", "bwrap", "landlock", "none"] = field(
        default="auto",
        metadata=about('"auto": bubblewrap, else Landlock, else the tool is off. "none": not confined.'),
    )
    timeout_s: float = field(default=30.0, metadata=about("A command is killed after this.", gt=0, le=3600))
    max_output_bytes: int = field(
        default=64 << 10,
        metadata=about("Output beyond this is cut, and the cut is marked.", ge=256, le=1 << 20),
    )
    max_memory_bytes: int = field(
        default=2 << 30,
        metadata=about("A command whose processes take more memory in all is killed.", ge=64 << 20),
    )


def shell_of(settings: Org) -> ShellSettings:
    """Return what the settings say of it; where they say nothing, the defaults."""
    return settings.further.get("shell") or ShellSettings()
