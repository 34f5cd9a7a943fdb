"""Version of the file formats an organisation declares, and a check that this program supports it.

`"format"` in `config/org.json`; a missing key means 1, as written by 0.1.0. Changes: docs/formats.md,
"Format".
"""

from __future__ import annotations

import os

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.version import __version__
from lemming.kernel.files import fs

NEWEST_FORMAT = 3
_LIMIT_BYTES = 1 << 20


def require_known_format(base_path: str | os.PathLike[str]) -> None:
    """Raise `ConfigError` for an organisation with a format of a newer version.

    Called before anything is written. Other problems of the file are reported elsewhere.
    """
    try:
        settings_json = parse(fs.read_bytes(f"{os.fspath(base_path)}/{paths.ORG_FILE}", _LIMIT_BYTES), allow_bom=True)
    except (OSError, JsonProblem):
        return
    declared = settings_json.get("format") if isinstance(settings_json, dict) else None
    if type(declared) is int and declared > NEWEST_FORMAT:
        raise ConfigError(
            f"format must be at most {NEWEST_FORMAT} for LeMMing {__version__}, got {declared}",
            where=paths.ORG_FILE,
            hint="run `pip install -U lemming-engine`; nothing has been changed",
        )
