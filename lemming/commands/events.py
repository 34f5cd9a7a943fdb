"""`lemming events`: what happened, one JSON object a line."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.agents import agent_folders
from lemming.base.errors import UsageError
from lemming.base.jsontext import nearest
from lemming.commands.following import Follow, Ticks, journals_meant
from lemming.commands.narration import NAMES, facts_of
from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org
from lemming.commands.screen import show_json, tell
from lemming.journal.events import Event, TickBegins, TickEnds
from lemming.journal.records import RECORDS
from lemming.telemetry.readings import events_in

_KINDS: tuple[type[Event], ...] = (*RECORDS.values(), TickBegins, TickEnds)
TYPES = sorted({NAMES.get(kind, kind.kind) for kind in _KINDS} - {""})


def events(
    ctx: typer.Context,
    ticks: Ticks = None,
    follow: Follow = False,
    types: Annotated[
        list[str] | None, option("--type TYPE", f"Only these, several times: {', '.join(TYPES)}.")
    ] = None,
    agent: Annotated[
        str | None, option("--agent AGENT", "Only what is about this agent's turns.", of_agents=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened, from the journals: one JSON object a line, as `lemming run-once --json` has them.

    With --follow it goes on while an engine runs, in this process's time or another's, and costs that engine
    nothing. Alone it begins with what is to come; --ticks names an earlier beginning. What no journal keeps
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
    base, wanted = find_org(ctx), frozenset(types or TYPES)
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
    kind = NAMES.get(type(event), event.kind)
    if kind in wanted and agent in (None, event.about):
        show_json(kind, facts_of(event, tick))
