"""`lemming events` and `lemming metrics`: what happened, and what it comes to, for other programs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from lemming.commands.narration import facts_of, type_of
from lemming.commands.options import Here, option
from lemming.commands.screen import show_json, show_text, tell
from lemming.commands.stopping import stop_on_signals
from lemming.kernel.agents import agent_folders
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.journal.events import Event, TickBegins, TickEnds
from lemming.kernel.journal.records import all_kinds
from lemming.kernel.org.organisation import Organisation
from lemming.telemetry.metrics import families_of, text_of
from lemming.telemetry.readings import events_in, from_now_on, readings
from lemming.timeline.tick_spans import TickSpan, journals_of, span_of

if TYPE_CHECKING:
    from lemming.kernel.journal.file import JournalContents


Ticks = Annotated[str | None, option("--ticks TICKS", "One tick (7), or several: 3..9, 3.., ..9.")]
Follow = Annotated[
    bool, option("-f --follow", "Go on with what is to come; without --ticks only with that. Ctrl-C ends it.")
]


@contextlib.contextmanager
def journals_meant(
    base: Organisation, ticks: str | None, *, follow: bool
) -> Iterator[tuple[Iterator[tuple[int, JournalContents]], threading.Event]]:
    """Give the journals that a person means, in their order, and what is set when they are to end.

    Without `ticks` all of them, with `follow` those from now on. Raises `UsageError` where there are none.
    """
    if not follow:
        journals_of(base, ticks)
        yield readings(base, span_of(ticks) if ticks else TickSpan(0)), threading.Event()
        return
    span = span_of(ticks) if ticks else from_now_on(base)
    with stop_on_signals(quiet=True) as switch:
        yield readings(base, span, stop=switch.stop), switch.stop


_KINDS: tuple[type[Event], ...] = (*all_kinds().values(), TickBegins, TickEnds)
TYPES = sorted({*map(type_of, _KINDS)} - {""})


def events(
    here: Here,
    ticks: Ticks = None,
    follow: Follow = False,
    types: Annotated[
        list[str] | None, option("--type TYPE", f"Only these, several times: {', '.join(TYPES)}.")
    ] = None,
    agent: Annotated[
        str | None, option("--agent AGENT", "Only what is about this agent's turns.", of_agents=True)
    ] = None,
) -> None:
    """Show what happened, from the journals: one JSON object a line, as `lemming run-once --json` has them.

    With --follow it goes on while an engine runs, in this process's time or another's, and costs that engine
    nothing. Without --ticks it begins with what is to come. What no journal keeps
    (problems, sleep, pieces of answers) is not there: docs/events.md.

    \b
    Examples:
      lemming events --ticks 3..9 --type turn_ended
      lemming events --type tool_finished --agent editor | jq -r .tool
      lemming events --follow | jq -c 'select(.type == "model_failed")'
    """
    for name in types or ():
        if name not in TYPES:
            hint = nearest(name, TYPES) or f"one of {', '.join(TYPES)}"
            raise UsageError(f'no journal has events of the type "{name}"', hint=hint)
    base, wanted = here.org, frozenset(types or TYPES)
    if agent is not None and agent not in (names := agent_folders(base)):
        meant = nearest(agent, names)
        tell(f'there is no agent "{agent}" now{f": {meant}" if meant else ""}', style="yellow")
    with journals_meant(base, ticks, follow=follow) as (journals, stop):
        latest, told = -1, 0
        for tick, reading in journals:
            told = told if tick == latest and told <= len(reading.records) else 0
            for event in events_in(tick, reading.records, told=told):
                _show(event, tick, wanted, agent)
            latest, told = tick, len(reading.records)
            if stop.is_set():
                break
        if latest < 0 and not follow:
            tell("no tick has been run here")


def _show(event: Event, tick: int, wanted: frozenset[str], agent: str | None) -> None:
    kind = type_of(type(event))
    if kind in wanted and agent in (None, event.about):
        show_json(kind, facts_of(event, tick))


def metrics(here: Here) -> None:
    """Print metrics as Prometheus reads them: totals of ledgers, where agents stand, how long things take.

    Totals survive restarts and the removal of journals. For a file that node_exporter's textfile collector
    reads, or served with `lemming serve --metrics`.

    \b
    Examples:
      lemming metrics
      lemming metrics > /var/lib/prometheus/node-exporter/news.prom
      lemming metrics --json | jq 'select(.name == "lemming_credits_total")'
    """
    families = families_of(here.org)
    if not here.as_json:
        show_text(text_of(families).rstrip("\n"))
        return
    for family in families:
        for labels, value in family.samples:
            facts = {"name": family.name, "kind": family.type, "labels": dict(labels), "value": value}
            show_json("metric", facts)
