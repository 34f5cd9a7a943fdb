"""Logging of the engine and of agents: everything in `lemming.kernel.logging_config`."""

from lemming.kernel.logging_config import *  # noqa: F403 - a door: each name is that module's own
