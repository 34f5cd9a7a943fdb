"""Every error that LeMMing raises on purpose: everything in `lemming.kernel.base.errors`."""

from lemming.kernel.base.errors import *  # noqa: F403 - a door: each name is that module's own
