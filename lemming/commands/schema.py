"""`lemming schema`: the JSON Schema of a file format."""

from __future__ import annotations

from typing import Annotated, Literal

from lemming.commands.options import Here, argument
from lemming.commands.screen import show, show_pretty
from lemming.facts.schemas import schema_of
from lemming.kernel.base.jsontext import compact

FormatName = Literal[
    "resume", "outbox", "memory", "store", "mark", "models", "org", "credits", "calendar", "mcp", "mcp_lock",
    "tick", "plan", "eval", "turn", "journal", "shown",
]  # fmt: skip


def schema(here: Here, name: Annotated[FormatName, argument("FORMAT", "Which format.")]) -> None:
    """Print the JSON Schema of a file format.

    FORMAT is one of resume, outbox, memory, store, models, org, credits, calendar, mcp, mcp_lock, tick, plan,
    eval, turn (a reply), journal (one line of it) and shown (a line that commands which look print with
    --json). With --json it is on one line.

    \b
    Example:
      lemming schema resume > resume.schema.json
    """
    plain = schema_of(name)
    if here.as_json:
        show(compact(plain).decode())
    else:
        show_pretty(plain)
