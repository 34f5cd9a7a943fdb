"""The screens of what an agent wrote, what its next turn sees, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from lemming.kernel.agents import load_agent, require_agent_folder
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.inboxes.inbox import Inbox, build_inbox
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.memory import load_memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.libraries.wording import format_count, to_text
from lemming.queries.screens.screen import OMITTED, AgentName, Column, Note, Parameter, Screen, ScreenResult
from lemming.queries.sentences import describe_entry
from lemming.queries.tick_preview import load_inspection_settings, preview_tick

_PERSON_INBOX_CHARS = 1 << 30  # a screen has room


class EntryRow(NamedTuple):
    """An entry; `is_unread` is omitted where no reader is looked at."""

    entry: OutboxEntry
    is_unread: Any = OMITTED


def list_outbox(
    org: OrgPath,
    agent: AgentName,
    number: Annotated[int, Parameter("-n --limit N", "Show at most N entries.", minimum=1)] = 20,
    kind: Annotated[MessageKind | None, Parameter("--kind KIND", "Show entries of this kind only.")] = None,
) -> ScreenResult:
    """Show the newest entries of an agent's outbox, oldest first.

    \b
    Examples:
      lemming outbox editor -n 5
      lemming outbox editor --json | jq -r .payload.text
    """
    from lemming.journal_tools.outbox_validation import validate_outbox

    require_agent_folder(org, agent)
    entries = read_outbox_entries(org, agent, None if kind else number)
    rows = [EntryRow(entry) for entry in entries if kind in (None, "", entry.kind)][-number:]
    ignored = len(validate_outbox(org, agent))
    text = f"{format_count(ignored, 'file')} ignored; `lemming validate {agent}` says why"
    return ScreenResult(rows, [Note(text, is_warning=True)] if ignored else [])


def list_inbox(
    org: OrgPath,
    agent: AgentName,
    number: Annotated[int, Parameter("-n --limit N", "Show at most N entries.", minimum=1)] = 50,
) -> InboxResult:
    """Show the entries that an agent's next turn will see: new entries (*), then earlier entries."""
    require_agent_folder(org, agent)
    config, reader = load_inspection_settings(org), load_agent(org, agent)
    is_person = config.is_person(reader)
    view = ReaderView(preview_tick(org, config).tick_context.mail, reader, read_state(org, agent).read)
    limit, chars = (number, _PERSON_INBOX_CHARS) if is_person else (config.org.inbox_limit, config.org.inbox_chars)
    box = build_inbox(view, limit=limit, chars=chars)
    rows = [*(EntryRow(entry, True) for entry in box.unread), *(EntryRow(entry, False) for entry in box.earlier)]
    marks = (box.mark, view.next_mark((), (), is_complete=True)) if is_person else (None, None)
    return InboxResult(rows[:number], _describe_omissions(box, len(rows) - number, is_person=is_person), marks=marks)


@dataclass(frozen=True)
class InboxResult(ScreenResult):
    """The inbox of a reader. `marks`: a person's read marks after these entries and after all entries."""

    marks: tuple[ReadMark | None, ReadMark | None] = (None, None)


def _describe_omissions(box: Inbox, omitted: int, *, is_person: bool) -> list[Note]:
    """Return the numbers of omitted entries, and problems of ignored files."""
    notes = [Note(f"{omitted} more; raise -n to see them")] if omitted > 0 else []
    explanation = "are unread: run the command again" if is_person else "do not fit and wait for the next turn"
    notes += [Note(f"{box.waiting} more new entries {explanation}")] if box.waiting else []
    return [*notes, *(Note(f"ignored: {problem}", is_warning=True) for problem in box.problems)]


def record_read_mark(org: OrgPath, name: str, mark: ReadMark | None) -> None:
    """Record a person's read mark in the ledger, because no turn of a person does."""
    state = read_state(org, name)
    if mark is not None and mark != state.read:
        amend_state(org, name, replace(state, read=mark), sync=False)


def _describe_row(row: EntryRow) -> str:
    entry = row.entry
    tags = "".join(f"  #{tag}" for tag in entry.tags)
    is_delayed = entry.not_before > timestamp(SystemClock().now())
    return f"{describe_entry(entry.payload)}{tags}{f'  (not before {entry.not_before})' if is_delayed else ''}"


OUTBOX = Screen(
    "outbox",
    kind="entry",
    title="Entries",
    tool="outbox",
    query=list_outbox,
    empty="no entries yet",
    columns=(
        Column(
            "is_unread", "", "True for an entry that is new to the reader.", bool, is_optional=True,
            text=lambda row: "*" if row.is_unread else "",
        ),
        Column("id", about="Id of the entry.", path="entry.id"),
        Column("tick", "TICK", "Tick of the entry.", int, path="entry.tick", shown="tick"),
        Column("agent", "AGENT", "Author of the entry.", path="entry.agent", shown="agent"),
        Column("kind", "KIND", "Kind of the entry.", path="entry.kind"),
        Column(
            "payload", "TEXT", "Payload of the entry.", dict[str, Any], path="entry.payload", text=_describe_row,
            width=2000,
        ),
        Column("tags", about="Tags of the entry.", type=list[str], path="entry.tags"),
        Column("created_at", about="Time of writing.", path="entry.created_at"),
    ),
)  # fmt: skip
INBOX = replace(OUTBOX, name="inbox", title="Inbox", tool="", query=list_inbox, empty="no entries")


def list_memories(org: OrgPath, agent: AgentName) -> ScreenResult:
    """List an agent's memories."""
    require_agent_folder(org, agent)
    memories = load_memories(org, agent)
    rows = [{"agent": agent, "key": key, "value": value} for key, value in memories.values.items()]
    return ScreenResult(rows, [Note(f"ignored: {problem}", is_warning=True) for problem in memories.problems])


MEMORY = Screen(
    "memory",
    kind="memory",
    title="Memory",
    command="memory list",
    tool="memory",
    query=list_memories,
    empty="no memories",
    columns=(
        Column("agent", about="Name of the agent."),
        Column("key", "KEY", "Key of the memory, and name of its file."),
        Column("value", "VALUE", "Value of the memory.", Any, text=lambda row: to_text(row["value"])),
    ),
)
