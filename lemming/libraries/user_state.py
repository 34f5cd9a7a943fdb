"""The folder of this user's own state, outside every organisation: grants, tokens, keys and clones."""

from __future__ import annotations

import os
from pathlib import Path

from lemming.kernel.base.errors import DiskError


def get_state_folder() -> Path:
    """Return the folder of this user's LeMMing state. Raises: DiskError for a user without a home folder."""
    try:
        configured = os.environ.get("XDG_STATE_HOME", "")
        state = Path(configured) if os.path.isabs(configured) else Path.home() / ".local/state"
    except RuntimeError as error:
        raise DiskError("this user has no home folder", where="~/.local/state", hint="set XDG_STATE_HOME") from error
    return state / "lemming"
