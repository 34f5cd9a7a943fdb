"""The block `shell` of `config/org.json`: the confinement of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lemming.kernel.files.fast_decoder import make_field
from lemming.kernel.org.config import OrgSettings


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """The settings of the shell tool's sandbox."""

    sandbox: Literal["auto", "bwrap", "landlock", "none"] = make_field(
        "auto", '"auto": bubblewrap, else Landlock, else the tool is off. "none": no sandbox.'
    )
    timeout_s: float = make_field(30.0, "Timeout of a command in seconds.", gt=0, le=3600)
    max_output_bytes: int = make_field(
        64 << 10, "Maximum output in bytes; the rest is cut, with a mark.", ge=256, le=1 << 20
    )
    max_memory_bytes: int = make_field(2 << 30, "Maximum memory of all processes of a command in bytes.", ge=64 << 20)


def get_shell_settings(settings: OrgSettings) -> ShellSettings:
    """Return the shell settings of an organisation, or the defaults."""
    return settings.extensions.get("shell") or ShellSettings()
