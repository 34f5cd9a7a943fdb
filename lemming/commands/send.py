"""`lemming send`: a person speaks, by an entry in the outbox of their agent."""

from __future__ import annotations

import shlex
from hashlib import file_digest
from pathlib import Path
from typing import Annotated, Any

from lemming.commands.calendar import add_job
from lemming.commands.options import (
    Here,
    argument,
    find_agent,
    object_typed,
    option,
    require_folder,
    text_typed,
)
from lemming.commands.screen import tell
from lemming.facts.next_turn import next_turn
from lemming.kernel import messages
from lemming.kernel.agents import Agent, agent_folders, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import meant, pretty
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.times.spoken import parse_duration, parse_moment
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.base.times.zones import zone
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import is_for_a_person, takes_turns

PAYLOAD_LIMIT_BYTES = messages.ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry
READERS_TOLD = 5


def send(
    here: Here,
    text: Annotated[
        list[str] | None, argument("TEXT", 'What to say; "-" reads it from standard input.')
    ] = None,
    author: Annotated[str, option("--as NAME", "The person's agent.", of_agents=True)] = "human",
    to: Annotated[str | None, option("--to NAME", "Whom it is meant for.", of_agents=True)] = None,
    kind: Annotated[
        MessageKind, option("--kind KIND", "message, report, request, response or status.")
    ] = "message",
    tag: Annotated[list[str] | None, option("--tag TAG", "A tag. May be repeated.")] = None,
    payload: Annotated[
        str | None, option("--payload JSON", "Further keys of the payload, as a JSON object.")
    ] = None,
    attach: Annotated[
        list[Path] | None, option("--attach FILE", "A file of the organisation. May be repeated.")
    ] = None,
    at: Annotated[
        str | None, option("--at WHEN", 'Not before: "tomorrow 9:00", 17:30, "fri 8:15", ISO.')
    ] = None,
    after: Annotated[
        str | None, option("--in DURATION", "Not before so long from now: 90s, 30m, 2h, 1h30m, 3d.")
    ] = None,
    every: Annotated[
        str | None, option("--every CRON", 'Again and again, as a job: "0 9 * * mon", @daily.')
    ] = None,
) -> None:
    """Write a message into a person's outbox; whoever may read it sees it in their next turn.

    Prints the path of the entry, and who will read it, and when. With --to it is new to that agent only;
    others who may read the outbox find it among what they know, and are not woken. With --at or --in nobody
    is shown it before that moment; times are in the time zone of config/org.json, else in UTC. With --every
    it is a job of config/calendar.json instead: the agent is asked each time (`lemming calendar`).

    \b
    Examples:
      lemming send "Write about the ferry, please."
      lemming send --to editor --kind request "Shorter headlines, please."
      lemming send --payload '{"text": "see the file", "file": "shared/plan.md"}'
      lemming send --to editor --attach shared/chart.png "What does it show?"
      lemming send --to editor --at "tomorrow 9:00" "Is the page ready?"
    """
    base = here.org
    config = load_config(base)
    _require_person(base, author, config)
    if to is not None:
        require_folder(base, to)
    waits_until = _moment(at, after, config)
    if every is not None:
        _require_a_job(to, text, waits_until)
        add_job(base, to or "", " ".join(text or ()), every)
        return
    if to is None and text and len(text) > 1:
        _refuse_lost_option(text, [name for name in agent_folders(base) if name != author])
    spoken = text_typed(text)  # may wait for standard input, while ticks go by
    sendable = _sendable(_payload(spoken, to, payload) | _attached(base, attach or []) | waits_until)
    entry = messages.send(
        base,
        author,
        tick=load_tick(base),
        kind=kind,
        payload=sendable,
        tags=tag or [],
        created_at=timestamp(SystemClock().now()),
    )
    here.shows_entry(entry)
    _tell_who_reads_it(base, entry, to, config)


def _refuse_lost_option(words: list[str], others: list[str]) -> None:
    """Raise for a text whose first word is the name of another agent: it would go to everybody."""
    first = words[0].strip(",:;@").lower()
    name = first if first in others else meant(first, others)
    if not name:
        return
    rest = shlex.quote(" ".join(words[1:]))
    raise UsageError(
        f'an entry to "{name}" must have --to {name}: without it, it goes to everybody',
        hint=f"lemming send --to {name} {rest}; to everybody: the text in one pair of quotes",
    )


def _require_person(base: OrgPath, author: str, config: Config) -> None:
    if is_for_a_person(find_agent(base, author), config):
        return
    agents = survey_agents(base).agents.values()
    people = ", ".join(agent.name for agent in agents if is_for_a_person(agent, config))
    raise UsageError(
        f"{author} speaks for itself: a model answers for it",
        hint=f"people here: {people or 'none; an agent with the model key human is one'}",
    )


def _require_a_job(to: str | None, text: list[str] | None, waits_until: dict[str, str]) -> None:
    if waits_until:
        raise UsageError("--every excludes --at and --in", hint="the cron expression says when")
    if to is None or not text:
        hint = 'lemming send --every "0 9 * * mon" --to editor "What was last week?"'
        raise UsageError("--every needs --to and a text", hint=hint)


def _moment(at: str | None, after: str | None, config: Config) -> dict[str, str]:
    """Return the key of the payload that holds an entry back; nothing when it is for now."""
    if at is None and after is None:
        return {}
    if at is not None and after is not None:
        raise UsageError("--at and --in exclude each other", hint="name the moment, or how long from now")
    now = SystemClock().now()
    if after is not None:
        return {"not_before": timestamp(now + parse_duration(after))}
    moment = parse_moment(at or "", now, config.org.timezone or "UTC")
    if moment <= now:
        raise UsageError(
            f"{moment_in_words(moment)} has passed", hint="name a moment to come, or send it without --at"
        )
    return {"not_before": timestamp(moment)}


def _payload(said: str, to: str | None, extra: str | None) -> dict[str, Any]:
    if not said and extra is None:
        raise UsageError("nothing to send", hint='lemming send "some text", or --payload')
    plain = {"text": said or None, "target": to}
    return {
        **{key: value for key, value in plain.items() if value is not None},
        **(object_typed(extra, "--payload", '{"key": "value"}') if extra is not None else {}),
    }


def _attached(base: OrgPath, files: list[Path]) -> dict[str, Any]:
    """Return the key of the payload that names files and what is in them."""
    named = []
    there = [Path(base) / file for file in files]
    for file in (inside if inside.exists() else file for inside, file in zip(there, files, strict=True)):
        try:
            place = file.resolve(strict=True).relative_to(Path(base).resolve())
            with file.open("rb") as content:
                digest = file_digest(content, "sha256").hexdigest()
        except ValueError as error:
            hint = "copy it below shared/, where agents may read it"
            raise UsageError(f"{file} is no file of the organisation", hint=hint) from error
        except OSError as error:
            raise UsageError(f"{file} cannot be attached: {error.strerror}") from error
        named.append({"path": place.as_posix(), "sha256": digest})
    return {"attachments": named} if named else {}


def _sendable(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload; raise `UsageError` if it is too large to be read as an entry."""
    size = len(pretty(payload))
    if size > PAYLOAD_LIMIT_BYTES:
        raise UsageError(
            f"{size:,} bytes are too many for one entry, which holds {PAYLOAD_LIMIT_BYTES:,}",
            hint="put it into a file below shared/ and send its name",
        )
    return payload


def _tell_who_reads_it(base: OrgPath, entry: OutboxEntry, to: str | None, config: Config) -> None:
    """Say who is shown an entry as something new, and in which tick at the earliest."""
    survey = survey_agents(base)
    able = [agent for agent in survey.agents.values() if agent.may_read(entry.agent)]
    named = frozenset((*survey.agents, *survey.broken))
    readers = [it for it in able if takes_turns(it, config) and _is_news(entry, it, named, config)]
    if to is not None and to not in {agent.name for agent in able}:
        tell(
            f'warning: {to} cannot read it; add "{entry.agent}" to read_outboxes in agents/{to}/resume.json',
            style="yellow",
        )
    for agent in able:
        if is_for_a_person(agent, config) and agent.name in entry.targets:
            tell(f"{agent.name} is a person: `lemming inbox {agent.name}` shows it")
    if entry.not_before > entry.created_at:
        moment = parse_timestamp(entry.not_before).astimezone(zone(config.org.timezone or "UTC"))
        until = until_text(moment, SystemClock().now())
        shown = _listed([agent.name for agent in readers])
        tell(f"nobody is shown it before {moment_in_words(moment)} ({until}){shown and f'; then {shown}'}")
    elif readers:
        coming = [(next_turn(base, agent, config, entry.tick), agent.name) for agent in readers]
        coming.sort(key=lambda each: (each[0].tick is None, each[0].tick, each[1]))
        told = _listed([f"{name} {'in ' if turn.at is None else ''}{turn.words}" for turn, name in coming])
        tell(f"to be read by {told} (tick {entry.tick} is next)")
    elif not entry.targets & {agent.name for agent in able}:
        later = [agent.name for agent in able if takes_turns(agent, config) and _has_inbox(agent, config)]
        see = "sees it in its" if len(later) == 1 else "see it in their"
        names = " and ".join(later) if len(later) < 3 else _listed(later)
        known = f"nobody is woken by it; {names} {see} next turn"
        tell(known if later else "warning: nobody will read it", style="yellow")


def _is_news(entry: OutboxEntry, agent: Agent, named: frozenset[str], config: Config) -> bool:
    """Return whether an entry is new to an agent: to who wakes for what names it, nothing else is."""
    if agent.name not in entry.targets and habits_of(agent, config).wake == "addressed":
        return False
    return entry.is_new_to(agent.name, named)


def _has_inbox(agent: Agent, config: Config) -> bool:
    """Return whether an agent's prompts show the newest of what it reads, also where that is no news."""
    habits = habits_of(agent, config)
    return habits.is_asked and not habits.is_written


def _listed(readers: list[str]) -> str:
    more = f" and {len(readers) - READERS_TOLD} more" if len(readers) > READERS_TOLD else ""
    return f"{', '.join(readers[:READERS_TOLD])}{more}"
