"""Remove secrets from workspace files written by a call's own code, after the call."""

from __future__ import annotations

import stat
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.files import fs, quota
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.tools import EngineTool, Tool
from lemming.kernel.tools.tool_context import ToolContext

MAX_BYTES = 64 << 20
"""Maximum bytes of a file that is searched."""

_MAX_NAMES = 5


def can_leave_files(tool: Tool) -> bool:
    """Return True if a tool's calls run code that may leave files in the workspace."""
    return tool.tool_class == "execute" or (tool.tool_class == "write" and not isinstance(tool, EngineTool))


def redact_workspace(context: ToolContext, since_s: float = 0.0) -> str:
    """Remove secrets from workspace files changed since `since_s`; return a note with the files, if any."""
    base, folder = context.base, paths.workspace_folder(context.agent.name)
    try:
        written = [file_entry for file_entry in quota.walk(f"{base}/{folder}") if _is_recent_file(file_entry, since_s)]
    except OSError as error:
        require_about_one_file(f"{base}/{folder}", error)
        return ""
    changed = [file_entry.path for file_entry in written if _redact_file(base, f"{folder}/{file_entry.path}")]
    if not changed:
        return ""
    remainder_text = f" and {len(changed) - _MAX_NAMES} others" if len(changed) > _MAX_NAMES else ""
    return f"[a secret was taken out of {', '.join(sorted(changed)[:_MAX_NAMES])}{remainder_text}]"


def _is_recent_file(file_entry: quota.FolderEntry, since_s: float) -> bool:
    status = file_entry.status
    is_changed = status.st_ctime >= since_s  # which no program can set
    return stat.S_ISREG(status.st_mode) and is_changed and status.st_size <= MAX_BYTES


def _redact_file(base: Path, file: str) -> bool:
    """Remove secrets from a file; return False if there were none."""
    try:
        raw = fs.read_bytes(base / file, MAX_BYTES)
        cleaned = redact_content(raw)
        if cleaned == raw:
            return False
        fs.write_atomic(base, file, cleaned)
    except OSError:  # it is gone, or cannot be read
        return False
    except DiskError as error:
        if not error.concerns_one_file:
            raise
        return False
    return True
