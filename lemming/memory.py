"""Memory of an agent, a file for each key: everything in `lemming.kernel.memory`."""

from lemming.kernel.memory import *  # noqa: F403 - a door: each name is that module's own
