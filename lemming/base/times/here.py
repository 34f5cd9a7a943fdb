"""The time zone of this machine, for what somebody means who names an hour and no zone."""

from __future__ import annotations

import os
from pathlib import Path

from lemming.base.times.cron import why_no_zone

_LOCAL, _NAMES = Path("/etc/localtime"), "zoneinfo/"


def zone_here() -> str:
    """Return the name of the zone that `TZ` or the system says, such as Europe/Berlin; else UTC."""
    try:
        _, _, system = os.readlink(_LOCAL).partition(_NAMES)
    except OSError:
        system = ""
    for name in (os.environ.get("TZ", "").removeprefix(":"), system):
        if name and not why_no_zone(name):
            return name.removeprefix("Etc/") if name == "Etc/UTC" else name
    return "UTC"
