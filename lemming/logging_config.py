"""Logging: where the engine's lines and an agent's go; all of `lemming.kernel.logging_config`."""

from lemming.kernel.logging_config import *  # noqa: F403 - a door: each name is that module's own
