"""`remind_me`: an entry of the agent to itself that it is shown when its moment comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from lemming.capabilities.toolbox.settings import reminders_of
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import ConfigError, PermissionDenied, ToolError, UsageError
from lemming.kernel.base.times.spoken import DURATIONS, EXAMPLES, parse_duration, parse_moment
from lemming.kernel.base.times.words import moment_in_words
from lemming.kernel.base.times.zones import zone
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fitting import about
from lemming.kernel.messages import (
    ENTRIES_PER_TURN,
    REMINDERS_FROM,
    EntryName,
    OutboxEntry,
    decode_entry,
    entry_effect,
    entry_id,
    list_outbox,
    names_in,
    read_entry,
)
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.context import ToolContext

TAG = "reminder"


class RemindMe(EngineTool):
    """Writes an entry that waits for a moment."""

    name = "remind_me"
    description = (
        "Be shown a note of yours at a later moment, as a new entry in your inbox: name a moment (at) or a "
        "duration (after)."
    )
    tool_class = "write"
    keeps_deadline = True
    success_is_news = False

    def plan(
        self,
        context: ToolContext,
        text: Annotated[str, about("What you want to be told then.", min_length=1, max_length=10_000)],
        at: Annotated[str, about(f"When: {EXAMPLES}. Times are in your time zone.")] = "",
        after: Annotated[str, about(f"Or after how long: {DURATIONS}.")] = "",
    ) -> ToolResult:
        """Return the effect that writes the entry, and the moment it waits for, as it was understood."""
        if bool(at) == bool(after):
            raise ToolError(
                f"{self.name}: name either at or after", hint=f"at: {EXAMPLES}; after: {DURATIONS}"
            )
        now = parse_timestamp(context.now)
        zone_name = context.agent.schedule.timezone or context.settings.timezone or "UTC"
        try:
            moment = parse_moment(at, now, zone_name) if at else now + parse_duration(after)
        except UsageError as error:
            raise ToolError(f"{self.name}: {error.message}", hint=error.hint) from error
        if moment <= now:
            at = moment_in_words(now.astimezone(zone(zone_name)))
            raise ToolError(f"{self.name}: {moment_in_words(moment)} has passed; it is {at}")
        settings = reminders_of(context.settings)
        if moment > now + timedelta(days=settings.max_days):
            raise ToolError(
                f"{self.name}: {moment_in_words(moment)} is more than {settings.max_days:g} days ahead"
            )
        waiting = _waiting(context)
        if len(waiting) >= settings.max_open:
            raise ToolError(f"{self.name}: {len(waiting)} reminders are waiting, and more are not kept")
        entry = _entry(context, text, timestamp(moment))
        here = moment_in_words(moment.astimezone(zone(zone_name)))
        return ToolResult(True, f"you will be reminded on {here}", (entry_effect(entry),))

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless an effect that a journal tells of is a reminder of the agent to itself."""
        folder, _, file_name = effect.path.rpartition("/")
        name = next(iter(names_in(context.agent.name, [file_name])), None)
        if effect.root or folder != paths.outbox_folder(context.agent.name) or name is None:
            raise PermissionDenied(f"{effect.place} is no entry of {context.agent.name}")
        entry = decode_entry(name, effect.content)
        if name.is_derived or not _is_reminder(entry):
            raise PermissionDenied(f"{effect.place} is no reminder of {context.agent.name} to itself")


def _entry(context: ToolContext, text: str, moment: str) -> OutboxEntry:
    name, tick = context.agent.name, context.tick
    taken = {it.id for it in (*list_outbox(context.base, name), *_staged(context)) if it.tick == tick}
    turn = context.turn
    ids = (entry_id(tick, name, REMINDERS_FROM + number, turn) for number in range(ENTRIES_PER_TURN))
    identity = next((it for it in ids if it not in taken), None)
    if identity is None:
        raise ToolError(f"remind_me: {ENTRIES_PER_TURN} reminders in one turn are enough")
    payload = {"text": text, "target": name, "not_before": moment}
    return OutboxEntry(identity, tick, name, "message", payload, [TAG], context.now)


def _waiting(context: ToolContext) -> list[OutboxEntry]:
    """Return the reminders of the agent that wait, those that this turn is about to write among them."""
    name = context.agent.name
    found = [_read(context, it) for it in list_outbox(context.base, name) if not it.is_derived]
    found += [decode_entry(it, context.staged[it.file]) for it in _staged(context) if not it.is_derived]
    return [entry for entry in found if entry and _is_reminder(entry) and entry.not_before > context.now]


def _staged(context: ToolContext) -> list[EntryName]:
    """Return the entries that this turn has staged so far."""
    folder = paths.outbox_folder(context.agent.name)
    files = [place.removeprefix(f"{folder}/") for place in context.staged if place.startswith(f"{folder}/")]
    return names_in(context.agent.name, files)


def _read(context: ToolContext, name: EntryName) -> OutboxEntry | None:
    try:
        return read_entry(context.base, name)
    except (ConfigError, FileNotFoundError):
        return None


def _is_reminder(entry: OutboxEntry) -> bool:
    return entry.targets == {entry.agent} and bool(entry.not_before)
