"""Settings for a look that runs nothing of an organisation, also where somebody has agreed to running it."""

from __future__ import annotations

from dataclasses import replace

from lemming.org.config import Config, load_config
from lemming.org.organisation import OrgPath


def settings_to_look_by(org: OrgPath) -> Config:
    """Return the settings without files of tools, and import no plugin: neither is code that a look runs.

    What only those would know, such as a tool of theirs, is not known then. Raises `ConfigError`.
    """
    config = load_config(org)
    return replace(config, org=replace(config.org, tool_files=[])) if config.org.tool_files else config
