"""Memory: what an agent remembers, a file for each key; all of `lemming.kernel.memory`."""

from lemming.kernel.memory import *  # noqa: F403 - a door: each name is that module's own
