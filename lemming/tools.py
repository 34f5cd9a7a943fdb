"""Tools: what an agent can do beside writing to its outbox and its memory; all of `lemming.kernel.tools`."""

from lemming.kernel.tools import *  # noqa: F403 - a door: each name is that module's own
