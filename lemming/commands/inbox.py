"""`lemming inbox`: what an agent's next turn would see."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.commands.entries import show_entries, show_entries_as_json
from lemming.commands.options import AgentName, AsJson
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import tell
from lemming.commands.trust import load_settings
from lemming.inspect.preview import preview_tick
from lemming.journal.ledger import read_state
from lemming.mail.inbox import Inbox, assemble
from lemming.messages import OutboxEntry, collect_readable_outboxes
from lemming.organisation import OrgPath
from lemming.tick.plan import is_for_a_person


def inbox(
    ctx: typer.Context,
    name: AgentName,
    number: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many entries at most.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what an agent's next turn would see: what is new to it (*), then what it knows.

    For a person: the newest entries they may read. Oldest first.
    """
    base = find_org(ctx)
    agent = find_agent(base, name)
    preview = preview_tick(base, load_settings(base))
    if is_for_a_person(agent, preview.snapshot.config):
        order = preview.survey.order
        entries = collect_readable_outboxes(base, name, agent.permissions, number)
        entries.sort(key=lambda entry: (entry.tick, order.index(entry.agent) if entry.agent in order else -1))
        _show(entries, None, as_json=as_json)
        return
    org = preview.snapshot.config.org
    mark = read_state(base, name).read
    view = preview.snapshot.mail.view(agent, mark)
    box = assemble(view, limit=org.inbox_limit, chars=org.inbox_chars)
    entries = [*box.unread, *box.known][:number]
    _show(entries, {entry.file for entry in box.unread}, as_json=as_json)
    if not as_json:
        _tell_rest(base, box, shown=len(entries))


def _show(entries: list[OutboxEntry], unread: set[str] | None, *, as_json: bool) -> None:
    if as_json:
        show_entries_as_json(entries, unread=unread)
    elif entries:
        show_entries(entries, unread=unread or (), with_author=True)
    else:
        tell("nothing to read")


def _tell_rest(base: OrgPath, box: Inbox, *, shown: int) -> None:
    more = len(box.unread) + len(box.known) - shown
    if more > 0:
        tell(f"{more} more with a larger -n", style="dim")
    if box.waiting:
        tell(f"{box.waiting} more new entries do not fit and wait for the turn after", style="dim")
    for problem in box.problems:
        tell(f"ignored: {problem}", style="yellow")
