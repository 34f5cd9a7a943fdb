"""What a call's own code has written into the workspace: secrets are taken out once the call is over."""

from __future__ import annotations

import stat
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.files import fs, quota
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.tools import EngineTool, Tool
from lemming.kernel.tools.context import ToolContext

LARGEST_BYTES = 64 << 20
"""A larger file is not looked at."""

_NAMED = 5


def is_left_by(tool: Tool) -> bool:
    """Return whether a tool's calls run code that may leave files in the workspace."""
    return tool.tool_class == "execute" or (tool.tool_class == "write" and not isinstance(tool, EngineTool))


def without_secrets(context: ToolContext, since_s: float = 0.0) -> str:
    """Take secrets out of the files of the workspace that changed since then; say which, empty for none."""
    base, folder = context.base, paths.workspace_folder(context.agent.name)
    try:
        written = [each for each in quota.walk(f"{base}/{folder}") if _is_looked_at(each, since_s)]
    except OSError as error:
        require_about_one_file(f"{base}/{folder}", error)
        return ""
    changed = [each.path for each in written if _clean(base, f"{folder}/{each.path}")]
    if not changed:
        return ""
    more = f" and {len(changed) - _NAMED} others" if len(changed) > _NAMED else ""
    return f"[a secret was taken out of {', '.join(sorted(changed)[:_NAMED])}{more}]"


def _is_looked_at(found: quota.Entry, since_s: float) -> bool:
    status = found.status
    is_changed = status.st_ctime >= since_s  # which no program can set
    return stat.S_ISREG(status.st_mode) and is_changed and status.st_size <= LARGEST_BYTES


def _clean(base: Path, file: str) -> bool:
    """Take secrets out of one file; return whether there were any."""
    try:
        found = fs.read_bytes(base / file, LARGEST_BYTES)
        cleaned = redact_content(found)
        if cleaned == found:
            return False
        fs.publish(base, file, cleaned)
    except OSError:  # it is gone, or cannot be read
        return False
    except DiskError as error:
        if not error.concerns_one_file:
            raise
        return False
    return True
