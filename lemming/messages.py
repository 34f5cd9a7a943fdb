"""Messages: entries in outboxes, their names and readers. Everything in `lemming.kernel.messages`."""

from typing import TYPE_CHECKING

from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.messages import *  # noqa: F403 - a door: each name is that module's own

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
