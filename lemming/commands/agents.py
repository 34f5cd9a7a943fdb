"""`lemming agents`: list, show, and make agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming import fs, paths
from lemming.agents import Agent, load_agent, survey_agents
from lemming.commands.options import AgentName, AsJson, agent_names, noun
from lemming.commands.org import find_agent, find_org, path_of_agent
from lemming.commands.preview import load_settings
from lemming.commands.screen import one_line, painted, printable, show, show_json, show_table, tell
from lemming.config import Config, credits_of, load_config
from lemming.engine import load_tick
from lemming.errors import ToolError, UnknownModel, UsageError
from lemming.jsontext import pretty
from lemming.ledger import AgentState, read_state
from lemming.schedule import AgentSchedule, fire_point, next_due
from lemming.tools import ToolRegistry

app = noun("List, show and make agents.")


@app.command("list")
def list_agents(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all agents."""
    survey = survey_agents(find_org(ctx))
    if as_json:
        for name, agent in survey.agents.items():
            show_json("agent", {"agent": name, "resume": agent.plain, "problem": ""})
        for name, error in survey.broken.items():
            show_json("agent", {"agent": name, "resume": None, "problem": str(error)})
        return
    rows = [
        [
            name,
            agent.model.key,
            _rhythm(agent.schedule),
            ", ".join(agent.permissions.read_outboxes) or "-",
            agent.title,
        ]
        for name, agent in survey.agents.items()
    ]
    rows += [[name, "-", "-", "-", f"BROKEN: {error}"] for name, error in survey.broken.items()]
    show_table(["AGENT", "MODEL", "FIRES", "READS", "TITLE"], rows)


@app.command("show")
def show_agent(ctx: typer.Context, name: AgentName, as_json: AsJson = False) -> None:
    """Show one agent: what its resume means, and where it stands."""
    base = find_org(ctx)
    agent, config, tick = find_agent(base, name), load_config(base), load_tick(base)
    state = read_state(base, name)
    readers = sorted(other.name for other in survey_agents(base).agents.values() if other.may_read(name))
    if as_json:
        facts = {"readers": readers, "state": state.as_json()}
        show_json("agent", {"agent": name, "resume": agent.plain, "problem": "", **facts})
        return
    show(painted(one_line(f"{name}  {agent.title}"), "bold"))
    for label, value in _facts(agent, config, tick, readers, state):
        show(f"  {label:<11} {one_line(value)}")
    show(f"\n{printable(agent.instructions)}")


@app.command("new")
def new_agent(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{paths.AGENT_NAME_RULE.capitalize()}.")],
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="What it is called in tables and prompts.")
    ] = "",
    instructions: Annotated[
        str, typer.Option("--instructions", metavar="TEXT", help="What it is told to be and do.")
    ] = "Describe here what this agent is for and what it should write.",
    model: Annotated[
        str, typer.Option("--model", metavar="KEY", help="A key of config/models.json.")
    ] = "default",
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--read",
            metavar="NAME",
            help='An agent whose outbox it reads; "*" is all. May be repeated.',
            autocompletion=agent_names,
        ),
    ] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", metavar="NAME", help="A tool it may call. May be repeated.")
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, metavar="N", help="Fire every N ticks.")] = 1,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", help="Shift the firing by so many ticks.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Make an agent: write agents/NAME/resume.json.

    \b
    Examples:
      lemming agents new critic --read reporter --instructions "Say what is missing in the report."
    """
    base = find_org(ctx)
    _refuse_bad_choices(base, name, model, tool or [])
    resume = {
        "name": name,
        "title": title or name.replace("_", " ").replace("-", " ").title(),
        "model": {"key": model},
        "permissions": {
            "read_outboxes": read or [],
            "tools": tool or [],
            "file_access": {"allow_read": ["./workspace"], "allow_write": ["./workspace"]},
        },
        "schedule": {"run_every_n_ticks": every, "phase_offset": offset},
        "instructions": instructions,
        "credits": {"max_credits": 1000, "soft_cap": 500},
    }
    file = f"{path_of_agent(name)}/resume.json"
    if not fs.create(base, file, pretty(resume)):
        raise UsageError(f'there is an agent "{name}" already', where=file, hint="edit its resume")
    agent = load_agent(base, name)
    if as_json:
        show_json("agent", {"agent": name, "resume": agent.plain, "problem": ""})
        return
    show(str(base / file))
    first = next_due(agent.schedule, load_tick(base))
    tell(f"{name} fires first in tick {first}; `lemming prompt {name}` shows its prompt")


def _refuse_bad_choices(base: Path, name: str, model: str, tools: list[str]) -> None:
    """Raise `UsageError` for a name that no agent can have, an unknown model key or an unknown tool."""
    path_of_agent(name)
    config = load_settings(base)
    try:
        config.model(model)
        for tool in tools:
            ToolRegistry.get(tool, config.org.plugins)
    except (UnknownModel, ToolError) as error:
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def _facts(
    agent: Agent, config: Config, tick: int, readers: list[str], state: AgentState
) -> list[tuple[str, str]]:
    """Return what is worth knowing about an agent as pairs of label and text."""
    entry = config.models.get(agent.model.key)
    allocation = credits_of(config, agent.name, agent.credits)
    limit = "no limit" if allocation.max_credits is None else f"of {allocation.max_credits:g}"
    files = agent.permissions.file_access
    last = f"{state.status} in tick {state.tick}, {state.turns} turns" if state.status else "never"
    return [
        ("resume", paths.resume_file(agent.name)),
        ("model", f"{agent.model.key}: {f'{entry.provider} {entry.model}' if entry else 'UNKNOWN'}"),
        ("fires", f"{_rhythm(agent.schedule)}, next in tick {next_due(agent.schedule, tick)}"),
        ("reads", ", ".join(agent.permissions.read_outboxes) or "nobody"),
        ("read by", ", ".join(readers) or "nobody"),
        ("tools", ", ".join(agent.permissions.tools) or "only those always allowed"),
        ("may read", ", ".join(files.allow_read) or "no files"),
        ("may write", ", ".join(files.allow_write) or "no files"),
        ("kinds", ", ".join(agent.turn.kinds)),
        ("credits", f"{state.credits:g} spent, {_passed_on(state)}{limit}"),
        ("last turn", last),
    ]


def _passed_on(state: AgentState) -> str:
    return f"{state.passed_on:g} passed on to agents it created, " if state.passed_on else ""


def _rhythm(schedule: AgentSchedule) -> str:
    every = schedule.run_every_n_ticks
    text = "every tick" if every == 1 else f"every {every} ticks"
    if point := fire_point(schedule):
        text += f" at {point:.2f}"
    return f"{text}, if something changed" if schedule.wake == "changed" else text
