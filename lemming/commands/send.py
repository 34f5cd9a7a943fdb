"""`lemming send` and `lemming say`: messages of a person, as entries in the outbox of the person's agent."""

from __future__ import annotations

import shlex
from hashlib import file_digest
from pathlib import Path
from typing import Annotated, Any

from lemming.commands.command_context import (
    AgentName,
    AsPerson,
    CommandContext,
    argument,
    find_agent,
    find_running_engine,
    join_text_argument,
    option,
    parse_json_object,
    require_agent_folder,
)
from lemming.commands.terminal import join_names, print_notice, print_warning
from lemming.kernel.agents import Agent, list_agent_folders, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import correct_typo, dump_pretty
from lemming.kernel.base.times import get_zone, parse_duration
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, OutboxEntry
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.everyday_times import format_moment, format_remaining_time, parse_moment
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_entries import choose_person, write_urgent_message
from lemming.queries.next_turn import find_next_turn
from lemming.read_model.tick_queries import find_working_turns

_PAYLOAD_LIMIT_BYTES = ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry
_MAX_READERS_NAMED = 5


def send(
    context: CommandContext,
    text: Annotated[list[str] | None, argument("TEXT", 'The message; "-" reads standard input.')] = None,
    author: Annotated[str, option("--as PERSON", "The person who sends the message.")] = "human",
    to: Annotated[str | None, option("--to AGENT", "Agent that the message is addressed to.")] = None,
    kind: Annotated[
        MessageKind, option("--kind KIND", "Kind of the entry: message, report, request, response or status.")
    ] = "message",
    tag: Annotated[list[str] | None, option("--tag TAG", "Add a tag. Repeatable.")] = None,
    payload: Annotated[str | None, option("--payload JSON", "Additional payload keys as a JSON object.")] = None,
    attach: Annotated[
        list[Path] | None, option("--attach FILE", "Attach a file of the organisation. Repeatable.")
    ] = None,
    at: Annotated[
        str | None, option("--at WHEN", 'Deliver at this time: "tomorrow 9:00", 17:30, "fri 8:15" or ISO.')
    ] = None,
    after: Annotated[str | None, option("--in DURATION", "Deliver after this time: 90s, 30m, 2h, 1h30m, 3d.")] = None,
    every: Annotated[str | None, option("--every CRON", 'Repeat on a cron schedule: "0 9 * * mon", @daily.')] = None,
) -> None:
    """Send a message as a person. Readers of the person's outbox see the message in their next turn.

    Prints the path of the entry, the readers, and the ticks of their next turns. With --to, the entry is new
    for this agent only; other readers of the outbox find the entry among known entries and are not woken.
    With --at or --in, the entry stays invisible until the given time, in the time zone of config/org.json or
    in UTC. With --every, a job is added to config/calendar.json instead, and the agent is asked at each
    occurrence (`lemming calendar`).

    \b
    Examples:
      lemming send "Write about the ferry, please."
      lemming send --to editor --kind request "Shorter headlines, please."
      lemming send --payload '{"text": "see the file", "file": "shared/plan.md"}'
      lemming send --to editor --attach shared/chart.png "What does it show?"
      lemming send --to editor --at "tomorrow 9:00" "Is the page ready?"
    """
    base = context.org
    config = load_config(base)
    require_person(base, author, config)
    if to is not None:
        require_agent_folder(base, to)
    delivery_key = _build_delivery_time(at, after, config)
    if every is not None:
        if delivery_key:
            raise UsageError("--every excludes --at and --in", hint="use one of them")
        if to is None or not text:
            hint = 'lemming send --every "0 9 * * mon" --to editor "What was last week?"'
            raise UsageError("--every requires --to and a text", hint=hint)
        require_fact("calendars.add_job")(base, to, " ".join(text), every)
        return
    if to is None and text and len(text) > 1:
        _reject_missing_to_option(text, [name for name in list_agent_folders(base) if name != author])
    message_text = join_text_argument(text)  # may wait for standard input, while ticks go by
    if not message_text and payload is None:
        raise UsageError("the message is empty", hint='write lemming send "some text", or use --payload')
    keys = {"text": message_text or None, "target": to}
    entry_payload: dict[str, Any] = {key: value for key, value in keys.items() if value is not None}
    entry_payload |= parse_json_object(payload, "--payload", '{"key": "value"}') if payload is not None else {}
    entry_payload |= _build_attachments(base, attach or []) | delivery_key
    if (size := len(dump_pretty(entry_payload))) > _PAYLOAD_LIMIT_BYTES:
        message = f"the payload must have at most {_PAYLOAD_LIMIT_BYTES:,} bytes, got {size:,}"
        raise UsageError(message, hint="put the content into a file in shared/ and send its name")
    if kind == "request" and "until" in entry_payload:
        require_fact("goals.require_valid")(base, entry_payload["until"], to or "")
    entry = write_person_entry(
        base,
        author,
        tick=load_tick(base),
        kind=kind,
        payload=entry_payload,
        tags=tag or [],
        created_at=timestamp(SystemClock().now()),
    )
    context.print_entry(entry)
    _print_readers(base, entry, to, config)


def _reject_missing_to_option(text: list[str], other_agents: list[str]) -> None:
    """Raise `UsageError` if the first word of the text names another agent: the entry would go to all readers."""
    first_word = text[0].strip(",:;@").lower()
    name = first_word if first_word in other_agents else correct_typo(first_word, other_agents)
    if not name:
        return
    command = f"lemming send --to {name} {shlex.quote(' '.join(text[1:]))}"
    message = f'a message to "{name}" must have --to {name}; without it, the message goes to everybody'
    raise UsageError(message, hint=f"write {command}, or put the whole text into quotes for everybody")


def require_person(base: OrgPath, author: str, config: Config) -> None:
    """Raise `UsageError` unless the author is a person's agent."""
    if config.is_person(find_agent(base, author)):
        return
    people = ", ".join(survey_agents(base).find_people(config))
    hint = f"people here: {people or 'none; create one with the model key human'}"
    raise UsageError(f"{author} is not a person: a model answers for it", hint=hint)


def _build_delivery_time(at: str | None, delay: str | None, config: Config) -> dict[str, str]:
    """Return the payload key that delays an entry, or an empty object for immediate delivery."""
    if at is None and delay is None:
        return {}
    if at is not None and delay is not None:
        raise UsageError("--at and --in exclude each other", hint="use one of them")
    current_time = SystemClock().now()
    if delay is not None:
        return {"not_before": timestamp(current_time + parse_duration(delay))}
    delivery_time = parse_moment(at or "", current_time, config.org.timezone or "UTC")
    if delivery_time <= current_time:
        message = f"the delivery time must be in the future, got {format_moment(delivery_time)}"
        raise UsageError(message, hint="name a later moment, or leave out --at")
    return {"not_before": timestamp(delivery_time)}


def _build_attachments(base: OrgPath, files: list[Path]) -> dict[str, Any]:
    """Return the payload key that lists files with their digests."""
    attachments = []
    for typed_file in files:
        file = Path(base) / typed_file if (Path(base) / typed_file).exists() else typed_file
        try:
            relative_path = file.resolve(strict=True).relative_to(Path(base).resolve())
            with file.open("rb") as content:
                digest = file_digest(content, "sha256").hexdigest()
        except ValueError as error:
            hint = "copy it to shared/, where agents may read it"
            raise UsageError(f"{file} is not a file of the organisation", hint=hint) from error
        except OSError as error:
            raise UsageError(f"{file} cannot be attached: {error.strerror}") from error
        attachments.append({"path": relative_path.as_posix(), "sha256": digest})
    return {"attachments": attachments} if attachments else {}


def _print_readers(base: OrgPath, entry: OutboxEntry, to: str | None, config: Config) -> None:
    """Print the agents that will see the entry as new, each with the tick or time of the next turn."""
    survey = survey_agents(base)
    permitted_readers = [agent for agent in survey.agents.values() if agent.may_read(entry.agent)]
    agent_names = frozenset((*survey.agents, *survey.broken))
    model_readers = [agent for agent in permitted_readers if config.has_model_turns(agent)]
    readers = [agent for agent in model_readers if _is_news(entry, agent, agent_names, config)]
    if to == entry.agent:
        print_warning(f"warning: {to} wrote it and reads only others; name another agent with --to")
    elif to is not None and to not in {agent.name for agent in permitted_readers}:
        print_warning(f'warning: {to} cannot read it; add "{entry.agent}" to read_outboxes in agents/{to}/resume.json')
    for agent in permitted_readers:
        if config.is_person(agent) and agent.name in entry.targets:
            print_notice(f"{agent.name} is a person: `lemming inbox {agent.name}` shows it")
    if entry.not_before > entry.created_at:
        delivery_time = parse_timestamp(entry.not_before).astimezone(get_zone(config.org.timezone or "UTC"))
        remaining_time = format_remaining_time(delivery_time, SystemClock().now())
        reader_names = join_names([agent.name for agent in readers], _MAX_READERS_NAMED)
        then = reader_names and f"; then {reader_names}"
        print_notice(f"nobody sees it before {format_moment(delivery_time)} ({remaining_time}){then}")
    elif readers:
        next_turns = [(find_next_turn(base, agent, config, entry.tick), agent.name) for agent in readers]
        next_turns.sort(key=lambda pair: (pair[0].tick is None, pair[0].tick, pair[1]))
        turns = [f"{name} {'in ' if turn.at is None else ''}{turn.description}" for turn, name in next_turns]
        reader_list = join_names(turns, _MAX_READERS_NAMED)
        print_notice(f"to be read by {reader_list} (tick {entry.tick} is next)")
    elif not entry.targets & {agent.name for agent in permitted_readers}:
        # Prompts of these agents also show the newest known entries.
        policies = {agent.name: resolve_turn_policy(agent, config) for agent in model_readers}
        indirect_readers = [name for name, policy in policies.items() if policy.is_asked and not policy.is_written]
        verb = "sees it in its" if len(indirect_readers) == 1 else "see it in their"
        names = join_names(indirect_readers, _MAX_READERS_NAMED)
        if len(indirect_readers) < 3:
            names = " and ".join(indirect_readers)
        summary = f"no agent is woken; {names} {verb} next turn"
        print_warning(summary if indirect_readers else "warning: no agent reads this outbox")


def _is_news(entry: OutboxEntry, agent: Agent, agent_names: frozenset[str], config: Config) -> bool:
    """Return True if the entry is new to the agent. With wake "addressed", only entries with its name are."""
    if agent.name not in entry.targets and resolve_turn_policy(agent, config).wake == "addressed":
        return False
    return entry.is_news_to_reader(agent.name, agent_names)


def say(
    context: CommandContext,
    agent: AgentName,
    text: Annotated[list[str] | None, argument("TEXT", 'The message; "-" reads standard input.')] = None,
    person: AsPerson = None,
) -> None:
    """Tell an agent something at once, even while it works.

    A running turn shows the message to the model with its next question. If no further question follows, or
    no turn is running, the agent's next turn shows it. It is an ordinary message with `"urgent": true`.

    \b
    Examples:
      lemming say editor "Stop after the first page, please."
      git diff | lemming say coder -
    """
    base = context.org
    message = join_text_argument(text)  # may wait for standard input, while ticks go by
    if not message:
        raise UsageError("the message is empty", hint=f'write lemming say {agent} "some text"')
    org_requests = load_requests(base)
    entry = write_urgent_message(base, org_requests, agent, message, person=choose_person(org_requests, person))
    context.print_entry(entry)
    if find_running_engine(base) and agent in find_working_turns(base, load_tick(base)):
        print_notice(f"{agent} is working: its next step shows it, or else its next turn")
    else:
        print_notice(f"the next turn of {agent} shows it")
