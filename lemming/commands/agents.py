"""`lemming agents`: list, show, copy, rename and remove agents. Making one: `lemming.commands.new_agent`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.new_agent import create, new_agent, plain_of
from lemming.commands.options import (
    AgentName,
    Here,
    Limit,
    OrAnAgent,
    argument,
    find_agent,
    has_been_interrupted,
    noun,
    option,
    path_of_new_agent,
    require_folder,
)
from lemming.commands.screen import (
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_json,
    show_table,
    show_text,
    tell,
)
from lemming.facts.accounts import AgentShown, agent_shown
from lemming.history.rewind import place_aside
from lemming.kernel.agents import Agent, agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.schedule import AgentSchedule, fire_point
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import is_for_a_person, pause_reason, takes_turns
from lemming.kernel.tick.runtime import open_org
from lemming.kernel.tick.soundness.judged import sound_survey
from lemming.service.naming import find_namers, remove_name
from lemming.service.unfinished_rename import rename_begun, require_no_rename
from lemming.timeline.renaming import creator_replaced, forget_approvals, rename

app = noun("List, show, make, rename and remove agents.", cls=OrAnAgent)


@app.verb("list")
def list_agents(here: Here, limit: Limit = None) -> None:
    """List all agents."""
    base = here.org
    survey, config = sound_survey(base), load_config(base)
    found = [(name, survey.agents.get(name)) for name in (*survey.agents, *survey.broken)]
    rows = []
    for name, agent in here.few(found, limit):
        problem = "" if agent else str(survey.broken[name])
        plain = {"agent": name, "resume": agent.plain if agent else None, "problem": problem}
        if here.shows("agent", plain):
            continue
        reads = ", ".join(agent.permissions.read_outboxes) if agent else ""
        key, fires = (agent.model.key, _when(agent, config)) if agent else ("-", "-")
        rows.append([name, key, fires, reads or "-", agent.title if agent else f"BROKEN: {problem}"])
    if not here.as_json:
        show_table(["AGENT", "MODEL", "FIRES", "READS", "TITLE"], rows)


@app.verb("show")
def show_agent(here: Here, name: AgentName) -> None:
    """Show one agent: what its resume means, and where it stands."""
    base = here.org
    config = load_config(base)
    found = agent_shown(base, find_agent(base, name), config)
    if here.shows("agent", found.as_json()):
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
        from lemming.capabilities.cron.expressions import explained

        by_clock = f"{explained(schedule.cron)} ({schedule.cron}, {schedule.timezone or 'the zone of all'})"
        text = by_clock if every == 1 else f"{by_clock} and {text}"
    if point := fire_point(schedule):
        text += f" at {point:.2f}"
    return f"{text}, if something changed" if schedule.wake == "changed" else text


NewName = Annotated[str, argument("NEW", f"{paths.AGENT_NAME_RULE.capitalize()}.")]


app.verb("new")(new_agent)


@app.verb("copy")
def copy_agent(here: Here, name: AgentName, new: NewName) -> None:
    """Make an agent with the resume of another. Memory, entries and credits spent are not copied.

    \b
    Example:
      lemming agents copy editor night-editor
    """
    base = here.org
    plain = plain_of(base, name)
    if new == name:
        raise UsageError(f'there is an agent "{new}" already', hint="choose another name")
    create(base, new, {**plain, "name": new}, as_json=here.as_json)


@app.verb("rename")
def rename_agent(here: Here, name: AgentName, new: NewName) -> None:
    """Give an agent another name. It keeps its memory, its entries, what it has read and what it has spent.

    Whoever reads it goes on reading it: read_outboxes of the others, config/credits.json and
    create_agent_allowed get the new name too. What the journals tell of the past stays under the old one.
    After a kill the same command does the rest; until then no tick runs.

    \b
    Example:
      lemming agents rename editor chief
    """
    base = here.org
    path_of_new_agent(new)
    with open_org(base, command="agents rename"):
        begun = rename_begun(base)
        if begun is None:
            find_agent(base, name)
            _require_no_open_tick(base)
        elif begun != (name, new):
            require_no_rename(base)
        changed = rename(base, name, new)
    if here.shows("renamed", {"agent": new, "before": name, "files": changed}):
        return
    for file in changed:
        show(file)
    tell(f"{name} is {new} now; `lemming validate` checks the rest")


@app.verb("rm")
def remove_agent(
    here: Here,
    name: AgentName,
    mend: Annotated[
        bool, option("--mend", "Remove its name from the teams and reading lists of other agents, too.")
    ] = False,
) -> None:
    """Take an agent out of the organisation: its folder is moved to aside/, from where it can be put back.

    Others may name it: in their team, or among those whom they read. A team with a name that is gone keeps
    its agent from running. On a terminal you are asked whether to take the name out; --mend does it, also
    for an agent that is gone already.

    \b
    Examples:
      lemming agents rm critic
      lemming agents rm critic --mend
    """
    base = here.org
    if mend and name not in agent_folders(base) and find_namers(base, name):
        _mend(here, name, find_namers(base, name), mend=True)
        return
    require_folder(base, name)
    with open_org(base, command="agents rm") as runtime:
        _require_no_open_tick(base)
        place = f"{place_aside(runtime)}/{paths.agent_folder(name)}"
        agents = survey_agents(base).agents
        if name in agents and (creator := agents[name].created_by):
            for file in map(paths.resume_file, agents):
                creator_replaced(base, file, name, creator)
        # First: after a kill in between a person is asked again, and nobody inherits an approval.
        forget_approvals(base, name)
        fs.move(Path(base), paths.agent_folder(name), place)
    namers = find_namers(base, name)
    if here.as_json:
        for other in namers if mend else ():
            remove_name(base, other, name)
        readers = [other for other, places in namers.items() if "permissions.read_outboxes" in places]
        facts = {"agent": name, "aside": place, "readers": readers, "named_in": namers, "is_mended": mend}
        show_json("removed", facts)
        return
    show(place)
    _mend(here, name, namers, mend=mend)
    tell(f"to put it back: mv {place} {paths.agent_folder(name)}")


def _mend(here: Here, name: str, namers: dict[str, list[str]], *, mend: bool) -> None:
    """Take the name of an agent that is gone out of other resumes, if wanted; else say where it is."""
    for other, places in namers.items():
        tell(f'{other} names "{name}" still: {", ".join(places)} in agents/{other}/resume.json')
    if namers and not mend and sys.stdin.isatty() and sys.stderr.isatty():
        mend = typer.confirm(f'Take "{name}" out there?', err=True)
    if mend:
        for other in namers:
            show(remove_name(here.org, other, name))
    elif namers:
        tell(f"`lemming agents rm {name} --mend` takes it out there")


def _require_no_open_tick(base: OrgPath) -> None:
    tick = load_tick(base)
    if has_been_interrupted(base, tick):
        raise UsageError(
            f"tick {tick} is not finished", hint="`lemming run-once` finishes it; then try again"
        )
