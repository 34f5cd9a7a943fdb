"""The screen of an agent's entries: written, and visible to the next turn."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.messages import OutboxEntry, read_outbox_entries
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.screens.parameters import AgentName
from lemming.queries.screens.screen import OMITTED, Column, Parameter, Screen, ScreenResult
from lemming.queries.sentences import describe_entry

DEFAULT_ENTRIES = 20


def list_outbox(
    org: OrgPath,
    agent: AgentName,
    number: Annotated[int, Parameter("-n --limit N", "Show at most N entries.", minimum=1)] = DEFAULT_ENTRIES,
    kind: Annotated[MessageKind | None, Parameter("--kind KIND", "Show entries of this kind only.")] = None,
) -> ScreenResult:
    """List the newest entries written by an agent, oldest first."""
    require_agent_folder(org, agent)
    entries = read_outbox_entries(org, agent, None if kind else number)
    return ScreenResult([entry for entry in entries if kind in (None, "", entry.kind)][-number:])


OUTBOX = Screen(
    "outbox",
    kind="entry",
    title="Entries",
    tool="outbox",
    query=list_outbox,
    row=OutboxEntry,
    is_table=False,
    empty="no entries yet",
    columns=(
        Column("id", about="Id of the entry."),
        Column("tick", "TICK", "Tick of the entry.", shown="tick"),
        Column("agent", "AGENT", "Author of the entry.", shown="agent"),
        Column("kind", "KIND", "Kind of the entry.", str),
        Column("payload", "TEXT", "Payload of the entry.", dict[str, Any], text=lambda entry: describe_entry(entry.payload)),
        Column("tags", "TAGS", "Tags of the entry.", list[str]),
        Column("created_at", about="Time of writing."),
        Column(
            "is_unread", about="True for an entry that is new to the reader.", type=bool, is_optional=True,
            value=lambda entry: OMITTED,
        ),
    ),
)  # fmt: skip
