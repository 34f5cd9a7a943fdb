"""The settings as they stand in their files, to be edited: `config/org.json` and `config/models.json`."""

from __future__ import annotations

from typing import Any

from lemming.base.errors import UsageError
from lemming.base.jsontext import nearest
from lemming.facts.typed_text import SETTINGS, as_it_stands
from lemming.org.organisation import OrgPath


def settings(org: OrgPath, *, file: str = "org") -> dict[str, Any]:
    """Return one file of settings, `org` or `models`, with what is wrong with it."""
    if file not in SETTINGS:
        raise UsageError(f'there are no settings "{file[:80]}"', hint=nearest(file[:80], [*SETTINGS]))
    return as_it_stands(org, SETTINGS[file])
