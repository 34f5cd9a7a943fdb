"""Which version of the files' formats an organisation says it has, and whether this program knows it.

`"format"` in `config/org.json`; without it: 1, as 0.1.0 wrote. What changed: docs/formats.md, "Format".
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
    """Raise `ConfigError` for an organisation of a format that only a newer version knows.

    It is asked before anything is written. What else is wrong with the file is for others to say.
    """
    try:
        plain = parse(fs.read_bytes(f"{os.fspath(base_path)}/{paths.ORG_FILE}", _LIMIT_BYTES), allow_bom=True)
    except (OSError, JsonProblem):
        return
    found = plain.get("format") if isinstance(plain, dict) else None
    if type(found) is int and found > NEWEST_FORMAT:
        raise ConfigError(
            f"this organisation has format {found}; LeMMing {__version__} knows none after {NEWEST_FORMAT}",
            where=paths.ORG_FILE,
            hint="pip install -U lemming-engine; nothing has been changed",
        )
