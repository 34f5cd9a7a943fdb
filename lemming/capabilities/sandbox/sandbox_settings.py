"""The block `shell` of `config/org.json`: the confinement of commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.org.config import OrgSettings


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """The settings of the shell tool's sandbox."""

    sandbox: Literal["auto", "bwrap", "landlock", "none"] = field(
        default="auto",
        metadata=describe_field(
            '"auto": bubblewrap, else Landlock, else the tool is off. "none": not confined.'
        ),
    )
    timeout_s: float = field(
        default=30.0, metadata=describe_field("A command is killed after this.", gt=0, le=3600)
    )
    max_output_bytes: int = field(
        default=64 << 10,
        metadata=describe_field("Output beyond this is cut, and the cut is marked.", ge=256, le=1 << 20),
    )
    max_memory_bytes: int = field(
        default=2 << 30,
        metadata=describe_field("A command whose processes take more memory in all is killed.", ge=64 << 20),
    )


def get_shell_settings(settings: OrgSettings) -> ShellSettings:
    """Return the shell settings of an organisation, or the defaults."""
    return settings.extensions.get("shell") or ShellSettings()
