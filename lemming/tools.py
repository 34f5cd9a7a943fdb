"""Tools: what an agent can do beside writing to its outbox and its memory; all of `lemming.kernel.tools`."""

from lemming.kernel.tools import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.tools.context import ToolContext as ToolContext
from lemming.kernel.tools.declared import tool as tool
