"""Messages: entries in outboxes, their names, and who may read them; all of `lemming.kernel.messages`."""

from lemming.kernel.messages import *  # noqa: F403 - a door: each name is that module's own
