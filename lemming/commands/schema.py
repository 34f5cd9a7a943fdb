"""`lemming export schema`: the JSON Schema of a file format."""

from __future__ import annotations

from typing import Annotated, Literal

from lemming.commands.command_context import CommandContext, argument
from lemming.commands.terminal import print_pretty_json, print_raw_json
from lemming.queries.format_schemas import get_schema

FormatName = Literal[
    "resume", "outbox", "memory", "store", "mark", "models", "org", "credits", "calendar", "mcp", "mcp_lock",
    "tick", "plan", "eval", "until", "reply", "journal", "output",
]  # fmt: skip


def schema(context: CommandContext, name: Annotated[FormatName, argument("FORMAT", "Name of the format.")]) -> None:
    """Print the JSON Schema of a file format.

    FORMAT is one of resume, outbox, memory, store, mark, models, org, credits, calendar, mcp, mcp_lock, tick,
    plan, eval, until (the goal of a request), reply (a model's reply), journal (a journal line) and output (an
    output line of read-only commands with --json). With --json, the schema is printed on one line.

    \b
    Example:
      lemming export schema resume > resume.schema.json
    """
    document = get_schema({"output": "shown", "reply": "turn"}.get(name, name))
    if context.as_json:
        print_raw_json(document)
    print_pretty_json(document)
