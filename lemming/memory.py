"""Memory of an agent, a file for each key: everything in `lemming.kernel.memory`."""

from typing import TYPE_CHECKING

from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.memory import *  # noqa: F403 - a door: each name is that module's own

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
