"""Tools, the actions of an agent besides outbox and memory: everything in `lemming.kernel.tools`."""

from typing import TYPE_CHECKING

from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.tools import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.tools.tool_context import ToolContext as ToolContext
from lemming.libraries.tool_decorator import tool as tool

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
