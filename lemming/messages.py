"""Messages: entries in outboxes, their names and readers. Everything in `lemming.kernel.messages`."""

from lemming.kernel.messages import *  # noqa: F403 - a door: each name is that module's own
