"""Every error that LeMMing raises on purpose: everything in `lemming.kernel.base.errors`."""

from typing import TYPE_CHECKING

from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.base.errors import *  # noqa: F403 - a door: each name is that module's own

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
