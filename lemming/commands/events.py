"""`lemming events` and `lemming export metrics`: events and metrics for other programs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from lemming.commands.command_context import CommandContext, option
from lemming.commands.run_output import event_to_json, event_type_name
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import print_json, print_notice, print_object, print_text, print_warning
from lemming.journal_tools.tick_ranges import TickRange, list_journals, parse_tick_range
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.journal.engine_events import Event, TickBegins, TickEnds
from lemming.kernel.org.organisation import Organisation
from lemming.queries.format_schemas import record_classes
from lemming.telemetry.journal_follower import get_upcoming_ticks, iter_events, iter_journals
from lemming.telemetry.metrics import iter_families, render_text

if TYPE_CHECKING:
    from lemming.kernel.journal.journal_parser import JournalContents


Ticks = Annotated[str | None, option("--ticks TICKS", "Ticks to include: 7, 3..9, 3.. or ..9.")]
Follow = Annotated[bool, option("-f --follow", "Follow new ticks until Ctrl-C; without --ticks, print new ticks only.")]


@contextlib.contextmanager
def select_journals(
    base: Organisation, ticks: str | None, *, follow: bool
) -> Iterator[tuple[Iterator[tuple[int, JournalContents]], threading.Event]]:
    """Give the selected journals in order, and an event for stopping the iteration.

    Without `ticks`, all journals; with `follow`, journals from now on. Raises `UsageError` if there are none.
    """
    if not follow:
        list_journals(base, ticks)
        yield iter_journals(base, parse_tick_range(ticks) if ticks else TickRange(0)), threading.Event()
        return
    tick_range = parse_tick_range(ticks) if ticks else get_upcoming_ticks(base)
    with stop_on_signals(quiet=True) as switch:
        yield iter_journals(base, tick_range, stop=switch.stop), switch.stop


_KINDS: tuple[type[Event], ...] = (*record_classes().values(), TickBegins, TickEnds)
TYPES = sorted({*map(event_type_name, _KINDS)} - {""})


def events(
    context: CommandContext,
    ticks: Ticks = None,
    follow: Follow = False,
    types: Annotated[
        list[str] | None, option("--type TYPE", f"Show events of this type only. Repeatable: {', '.join(TYPES)}.")
    ] = None,
    agent: Annotated[str | None, option("--agent AGENT", "Show events of this agent's turns only.")] = None,
) -> None:
    """Print events from the journals, one JSON object per line, as `lemming run-once --json` does.

    With --follow, the command keeps reading while an engine runs in any process, at no cost to the engine;
    without --ticks, only new events are printed. Events without a journal record (problems, sleep, pieces of
    answers) are missing: docs/events.md.

    \b
    Examples:
      lemming events --ticks 3..9 --type turn_ended
      lemming events --type tool_finished --agent editor | jq -r .tool
      lemming events --follow | jq -c 'select(.type == "model_failed")'
    """
    for name in types or ():
        if name not in TYPES:
            hint = did_you_mean(name, TYPES) or f"use one of {', '.join(TYPES)}"
            raise UsageError(f'there is no event type "{name}"', hint=hint)
    base, selected_types = context.org, frozenset(types or TYPES)
    if agent is not None and agent not in (names := list_agent_folders(base)):
        suggestion = did_you_mean(agent, names)
        print_warning(f'there is no agent "{agent}" now{f": {suggestion}" if suggestion else ""}')
    with select_journals(base, ticks, follow=follow) as (journals, stop):
        latest, printed = -1, 0
        for tick, reading in journals:
            printed = printed if tick == latest and printed <= len(reading.records) else 0
            for event in iter_events(tick, reading.records, printed=printed):
                kind = event_type_name(type(event))
                if kind in selected_types and agent in (None, event.agent_name):
                    print_object(kind, event_to_json(event, tick))
            latest, printed = tick, len(reading.records)
            if stop.is_set():
                break
        if latest < 0 and not follow:
            print_notice("no tick has run yet")


def metrics(context: CommandContext) -> None:
    """Print metrics in Prometheus format: ledger totals, agent status and durations.

    Totals survive restarts and the removal of journals. Write the output to a file for the textfile collector
    of node_exporter, or serve the metrics with `lemming channels serve --metrics`.

    \b
    Examples:
      lemming export metrics
      lemming export metrics > /var/lib/prometheus/node-exporter/news.prom
      lemming export metrics --json | jq 'select(.name == "lemming_credits_total")'
    """
    families = [*iter_families(context.org)]
    print_text(render_text(families).rstrip("\n"))
    for family in families:
        for labels, value in family.samples:
            facts = {"name": family.name, "kind": family.type, "labels": dict(labels), "value": value}
            print_json("metric", facts)
