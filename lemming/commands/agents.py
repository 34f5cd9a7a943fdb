"""`lemming agents`: list and show agents. Those that make, rename and remove: `lemming.commands.staffing`."""

from __future__ import annotations

import typer

from lemming.agents import Agent
from lemming.base import paths
from lemming.base.times.cron import explained
from lemming.commands.new_agent import new_agent
from lemming.commands.options import AgentName, AsJson, OrAnAgent, noun
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import (
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_json,
    show_table,
    show_text,
)
from lemming.commands.staffing import copy_agent, remove_agent, rename_agent
from lemming.facts.agents import AgentShown, agent_shown
from lemming.org.config import Config, load_config
from lemming.org.schedule import AgentSchedule, fire_point
from lemming.tick.plan import is_for_a_person, pause_reason, takes_turns
from lemming.tick.soundness.judged import sound_survey

app = noun("List, show, make, rename and remove agents.", cls=OrAnAgent)


@app.command("list")
def list_agents(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all agents."""
    base = find_org(ctx)
    survey, config = sound_survey(base), load_config(base)
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
            _when(agent, config),
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
    config = load_config(base)
    found = agent_shown(base, find_agent(base, name), config)
    if as_json:
        show_json("agent", found.as_json())
        return
    show(painted(one_line(f"{name}  {found.agent.title}"), "bold"))
    for label, value in _facts(found, config):
        show(f"  {label:<11} {one_line(value)}")
    show_text(f"\n{found.agent.instructions}")


def _facts(found: AgentShown, config: Config) -> list[tuple[str, str]]:
    """Return what is worth knowing about an agent as pairs of label and text."""
    agent, coming, spent, state = found.agent, found.coming, found.account, found.state
    entry = config.models.get(agent.model.key)
    limit = "no limit" if spent.max_credits is None else f"of {spent.max_credits:g}"
    judged = f"{spent.judged:g} of them on judges, " if spent.judged else ""
    passed_on = f"{spent.passed_on:g} passed on to agents it created, " if spent.passed_on else ""
    files = agent.permissions.file_access
    fires = f"{_rhythm(agent.schedule)}, next {'in ' if coming.at is None else ''}{coming.words}"
    failed = f", {state.failed} failed" if state.failed else ""
    last = f"{state.status} in tick {state.tick}, {counted(state.turns, 'turn')} done{failed}"
    return [
        ("resume", paths.resume_file(agent.name)),
        ("model", f"{agent.model.key}: {f'{entry.provider} {entry.model}' if entry else 'UNKNOWN'}"),
        ("fires", pause_reason(agent.paused) if agent.paused else fires),
        ("reads", ", ".join(agent.permissions.read_outboxes) or "nobody"),
        ("read by", ", ".join(found.readers) or "nobody"),
        ("tools", ", ".join(agent.permissions.tools) or "only those always allowed"),
        ("may read", ", ".join(files.allow_read) or "no files"),
        ("may write", ", ".join(files.allow_write) or "no files"),
        ("kinds", ", ".join(agent.turn.kinds)),
        ("credits", f"{spent.spent:g} spent, {judged}{passed_on}{limit}"),
        ("dollars", in_dollars(spent.cost_usd, calls=spent.unpriced_calls, unpriced=spent.unpriced_calls)),
        ("last turn", last if state.status else "never"),
    ]


def _when(agent: Agent, config: Config) -> str:
    if is_for_a_person(agent, config):
        return "a person speaks"
    if not takes_turns(agent, config):
        return "a channel speaks"
    return "paused" if agent.paused else _rhythm(agent.schedule)


def _rhythm(schedule: AgentSchedule) -> str:
    every = schedule.run_every_n_ticks
    text = "every tick" if every == 1 else f"every {every} ticks"
    if schedule.cron is not None:
        by_clock = f"{explained(schedule.cron)} ({schedule.cron}, {schedule.timezone or 'the zone of all'})"
        text = by_clock if every == 1 else f"{by_clock} and {text}"
    if point := fire_point(schedule):
        text += f" at {point:.2f}"
    return f"{text}, if something changed" if schedule.wake == "changed" else text


app.command("new")(new_agent)
app.command("copy")(copy_agent)
app.command("rename")(rename_agent)
app.command("rm")(remove_agent)
