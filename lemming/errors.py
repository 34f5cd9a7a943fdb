"""Every error that LeMMing raises on purpose, for whoever catches one: all of `lemming.base.errors`."""

from lemming.base.errors import *  # noqa: F403 - a door: each name is that module's own
