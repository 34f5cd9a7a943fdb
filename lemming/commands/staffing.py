"""`lemming agents copy`, `rename` and `rm`: who works here. Making one: `lemming.commands.new_agent`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.agents import survey_agents
from lemming.base import paths
from lemming.base.errors import UsageError
from lemming.commands.new_agent import create, plain_of
from lemming.commands.options import AgentName, AsJson, argument
from lemming.commands.org import find_agent, find_org, has_been_interrupted, path_of_agent, require_folder
from lemming.commands.screen import show, show_json, tell
from lemming.files import fs
from lemming.history.rewind import place_aside
from lemming.org.organisation import OrgPath
from lemming.service.unfinished_rename import rename_begun, require_no_rename
from lemming.tick.counter import load_tick
from lemming.tick.runtime import open_org
from lemming.timeline.renaming import creator_replaced, rename

NewName = Annotated[str, argument("NEW", f"{paths.AGENT_NAME_RULE.capitalize()}.")]


def copy_agent(ctx: typer.Context, name: AgentName, new: NewName, as_json: AsJson = False) -> None:
    """Make an agent with the resume of another. Memory, entries and credits spent are not copied.

    \b
    Example:
      lemming agents copy editor night-editor
    """
    base = find_org(ctx)
    plain = plain_of(base, name)
    create(base, new, {**plain, "name": new}, as_json=as_json)


def rename_agent(ctx: typer.Context, name: AgentName, new: NewName, as_json: AsJson = False) -> None:
    """Give an agent another name. It keeps its memory, its entries, what it has read and what it has spent.

    Whoever reads it goes on reading it: read_outboxes of the others, config/credits.json and
    create_agent_allowed get the new name too. What the journals tell of the past stays under the old one.
    After a kill the same command does the rest; until then no tick runs.

    \b
    Example:
      lemming agents rename editor chief
    """
    base = find_org(ctx)
    path_of_agent(new)
    with open_org(base, command="agents rename"):
        begun = rename_begun(base)
        if begun is None:
            find_agent(base, name)
            _require_no_open_tick(base)
        elif begun != (name, new):
            require_no_rename(base)
        changed = rename(base, name, new)
    if as_json:
        show_json("renamed", {"agent": new, "before": name, "files": changed})
        return
    for file in changed:
        show(file)
    tell(f"{name} is {new} now; `lemming validate` checks the rest")


def remove_agent(ctx: typer.Context, name: AgentName, as_json: AsJson = False) -> None:
    """Take an agent out of the organisation: its folder is moved to aside/, from where it can be put back.

    \b
    Example:
      lemming agents rm critic
    """
    base = find_org(ctx)
    require_folder(base, name)
    with open_org(base, command="agents rm") as runtime:
        _require_no_open_tick(base)
        place = f"{place_aside(runtime)}/{paths.agent_folder(name)}"
        agents = survey_agents(base).agents
        if name in agents and (creator := agents[name].created_by):
            for file in map(paths.resume_file, agents):
                creator_replaced(base, file, name, creator)
        fs.move(Path(base), paths.agent_folder(name), place)
    readers = [a.name for a in survey_agents(base).agents.values() if name in a.permissions.read_outboxes]
    if as_json:
        show_json("removed", {"agent": name, "aside": place, "readers": readers})
        return
    show(place)
    for reader in readers:
        tell(f'{reader} has it in its list still: take "{name}" out of agents/{reader}/resume.json')
    tell(f"to put it back: mv {place} {paths.agent_folder(name)}")


def _require_no_open_tick(base: OrgPath) -> None:
    tick = load_tick(base)
    if has_been_interrupted(base, tick):
        raise UsageError(
            f"tick {tick} is not finished", hint="`lemming run-once` finishes it; then try again"
        )
