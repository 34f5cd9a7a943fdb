"""The tool `remind_me`: write an entry to the agent itself, shown at a later time."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Annotated

from lemming.capabilities.toolbox.toolbox_settings import get_reminder_settings
from lemming.ext import ConfigError, describe_field
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import PermissionDenied, ToolError, UsageError
from lemming.kernel.base.times import DURATIONS, get_zone, parse_duration
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.messages import (
    ENTRIES_PER_TURN,
    REMINDERS_FROM,
    EntryName,
    OutboxEntry,
    decode_entry,
    entry_id,
    list_outbox,
    parse_file_names,
    to_file_effect,
)
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.everyday_times import EXAMPLES, format_moment, parse_moment
from lemming.libraries.outbox_files import read_entry

TAG = "reminder"


class RemindMeTool(EngineTool):
    """Writes an entry with a start time in the future."""

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
        text: Annotated[str, describe_field("What you want to be told then.", min_length=1, max_length=10_000)],
        at: Annotated[str, describe_field(f"When: {EXAMPLES}. Times are in your time zone.")] = "",
        after: Annotated[str, describe_field(f"Or after how long: {DURATIONS}.")] = "",
    ) -> ToolResult:
        """Return the effect that writes the entry, and the start time as interpreted."""
        if bool(at) == bool(after):
            raise ToolError(f"{self.name}: name either at or after", hint=f"at: {EXAMPLES}; after: {DURATIONS}")
        current_time = parse_timestamp(context.now)
        zone_name = context.agent.schedule.timezone or context.settings.timezone or "UTC"
        try:
            start_time = parse_moment(at, current_time, zone_name) if at else current_time + parse_duration(after)
        except UsageError as error:
            raise ToolError(f"{self.name}: {error.message}", hint=error.hint) from error
        if start_time <= current_time:
            at = format_moment(current_time.astimezone(get_zone(zone_name)))
            raise ToolError(f"{self.name}: {format_moment(start_time)} has passed; it is {at}")
        settings = get_reminder_settings(context.settings)
        if start_time > current_time + timedelta(days=settings.max_days):
            raise ToolError(f"{self.name}: {format_moment(start_time)} is more than {settings.max_days:g} days ahead")
        pending = _pending_reminders(context)
        if len(pending) >= settings.max_open:
            raise ToolError(f"{self.name}: {len(pending)} reminders are waiting, and more are not kept")
        entry = _build_entry(context, text, timestamp(start_time))
        local_time = format_moment(start_time.astimezone(get_zone(zone_name)))
        return ToolResult(True, f"you will be reminded on {local_time}", (to_file_effect(entry),))

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless a recorded effect writes a reminder of the agent to itself."""
        folder, _, file_name = effect.path.rpartition("/")
        name = next(iter(parse_file_names(context.agent.name, [file_name])), None)
        if effect.root or folder != paths.outbox_folder(context.agent.name) or name is None:
            raise PermissionDenied(f"{effect.path_key} is no entry of {context.agent.name}")
        entry = decode_entry(name, effect.content)
        if name.has_engine_id or not _is_reminder(entry):
            raise PermissionDenied(f"{effect.path_key} is no reminder of {context.agent.name} to itself")


def _build_entry(context: ToolContext, text: str, start_time: str) -> OutboxEntry:
    name, tick = context.agent.name, context.tick
    used_ids = {
        entry.id for entry in (*list_outbox(context.base, name), *_staged_entries(context)) if entry.tick == tick
    }
    turn = context.turn
    ids = (entry_id(tick, name, REMINDERS_FROM + number, turn) for number in range(ENTRIES_PER_TURN))
    free_id = next((name_or_id for name_or_id in ids if name_or_id not in used_ids), None)
    if free_id is None:
        raise ToolError(f"remind_me: {ENTRIES_PER_TURN} reminders in one turn are enough")
    payload = {"text": text, "target": name, "not_before": start_time}
    return OutboxEntry(free_id, tick, name, "message", payload, [TAG], context.now)


def _pending_reminders(context: ToolContext) -> list[OutboxEntry]:
    name = context.agent.name
    staged, entries = _staged_entries(context), list[OutboxEntry]()
    for entry_name in (*list_outbox(context.base, name), *staged):
        if entry_name.has_engine_id:
            continue
        with suppress(ConfigError, FileNotFoundError):  # removed or damaged by now
            content = context.staged.get(entry_name.file) if entry_name in staged else None
            entries.append(decode_entry(entry_name, content) if content else read_entry(context.base, entry_name))
    return [entry for entry in entries if _is_reminder(entry) and entry.not_before > context.now]


def _staged_entries(context: ToolContext) -> list[EntryName]:
    folder = paths.outbox_folder(context.agent.name)
    files = [path.removeprefix(f"{folder}/") for path in context.staged if path.startswith(f"{folder}/")]
    return parse_file_names(context.agent.name, files)


def _is_reminder(entry: OutboxEntry) -> bool:
    return entry.targets == {entry.agent} and bool(entry.not_before)
