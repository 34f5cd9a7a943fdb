"""`lemming agents`: list, show, copy, rename and remove agents. `lemming.commands.new_agent` creates agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    argument,
    find_agent,
    get_new_agent_path,
    is_tick_incomplete,
    make_command_group,
    option,
    require_agent_folder,
)
from lemming.commands.new_agent import new_agent, read_resume_json, write_new_agent
from lemming.commands.terminal import (
    can_ask,
    format_count,
    format_usd,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_text,
    style_text,
)
from lemming.git_history.rewind import make_archive_folder_name
from lemming.journal_tools.agent_rename import (
    find_referring_agents,
    remove_references,
    remove_standing_approvals,
    rename_agent,
    replace_creator,
)
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import format_pause
from lemming.kernel.tick.tick_counter import load_tick
from lemming.operations.open_org import open_org
from lemming.operations.pending_rename import find_pending_rename, require_no_rename
from lemming.queries.credit_accounts import load_agent_details
from lemming.queries.screens.agents_screen import AGENTS, describe_interval

app = make_command_group("List, show, create, rename and remove agents.", cls=AgentFallbackGroup)


app.add_screen("list", AGENTS)


@app.subcommand("show")
def show_agent(context: CommandContext, name: AgentName) -> None:
    """Show an agent's effective resume and status."""
    base = context.org
    config = load_config(base)
    details = load_agent_details(base, find_agent(base, name), config)
    if context.print_as_json("agent", details.as_json()):
        return
    print_data(style_text(one_line(f"{name}  {details.agent.title}"), "bold"))
    agent, coming, spent, state = details.agent, details.upcoming, details.account, details.state
    entry = config.models.get(agent.model.key)
    limit = "no limit" if spent.max_credits is None else f"of {spent.max_credits:.10g}"
    judge_share = f"{spent.judged:.10g} of them on judges, " if spent.judged else ""
    transferred = f"{spent.passed_on:.10g} transferred to agents it created, " if spent.passed_on else ""
    files = agent.permissions.file_access
    fires = f"{describe_interval(agent.schedule)}, next {'in ' if coming.at is None else ''}{coming.description}"
    failed = f", {state.failed} failed" if state.failed else ""
    last = f"{state.status} in tick {state.tick}, {format_count(state.turns, 'turn')} done{failed}"
    facts = {
        "resume": paths.resume_file(agent.name),
        "model": f"{agent.model.key}: {f'{entry.provider} {entry.model}' if entry else 'UNKNOWN'}",
        "fires": format_pause(agent.paused) if agent.paused else fires,
        "reads": ", ".join(agent.permissions.read_outboxes) or "nobody",
        "read by": ", ".join(details.readers) or "nobody",
        "tools": ", ".join(agent.permissions.tools) or "only the tools that every agent has",
        "may read": ", ".join(files.allow_read) or "no files",
        "may write": ", ".join(files.allow_write) or "no files",
        "kinds": ", ".join(agent.turn.kinds),
        "credits": f"{spent.spent:.10g} spent, {judge_share}{transferred}{limit}",
        "dollars": format_usd(spent.cost_usd, calls=spent.unpriced_calls, unpriced=spent.unpriced_calls),
        "last turn": last if state.status else "never",
    }
    for label, value in facts.items():
        print_data(f"  {label:<11} {one_line(value)}")
    print_text(f"\n{agent.instructions}")


NewName = Annotated[str, argument("NEW", f"{paths.AGENT_NAME_RULE.capitalize()}.")]


app.subcommand("new")(new_agent)


@app.subcommand("copy")
def copy_agent(context: CommandContext, name: AgentName, new: NewName) -> None:
    """Create an agent from another agent's resume. Memory, entries and spent credits are not copied.

    \b
    Example:
      lemming agents copy editor night-editor
    """
    base = context.org
    resume = read_resume_json(base, name)
    if new == name:
        raise UsageError(f'there is an agent "{new}" already', hint="choose another name")
    write_new_agent(base, new, {**resume, "name": new})


@app.subcommand("rename")
def rename_agent_command(context: CommandContext, name: AgentName, new: NewName) -> None:
    """Rename an agent. Memory, entries, read positions and spent credits are kept.

    Readers keep access: read_outboxes of other agents, config/credits.json and create_agent_allowed get the
    new name too. Journals of past ticks keep the old name. If the rename is killed, run the same command
    again to complete the rename; no tick runs until then.

    \b
    Example:
      lemming agents rename editor chief
    """
    base = context.org
    get_new_agent_path(new)
    with open_org(base, command="agents rename"):
        unfinished = find_pending_rename(base)
        if unfinished is None:
            find_agent(base, name)
            _require_no_open_tick(base)
        elif unfinished != (name, new):
            require_no_rename(base)
        changed = rename_agent(base, name, new)
    print_json("renamed", {"agent": new, "before": name, "files": changed})
    for file in changed:
        print_data(file)
    print_notice(f"{name} is now {new}; `lemming validate` checks the references to it")


@app.subcommand("rm")
def remove_agent(
    context: CommandContext,
    name: AgentName,
    mend: Annotated[
        bool, option("--mend", "Also remove the agent's name from teams and reading lists of other agents.")
    ] = False,
) -> None:
    """Remove an agent. Its folder is archived in aside/ and can be restored.

    Other agents may still list the removed agent in their team or in read_outboxes. An agent with a missing
    team member cannot run. On a terminal you are asked whether to remove the name there; --mend removes the
    name without asking, also for an agent that you removed earlier.

    \b
    Examples:
      lemming agents rm critic
      lemming agents rm critic --mend
    """
    base = context.org
    if mend and name not in list_agent_folders(base) and (referrers := find_referring_agents(base, name)):
        _remove_references(context, name, referrers, mend=True)
        return
    require_agent_folder(base, name)
    with open_org(base, command="agents rm") as runtime:
        _require_no_open_tick(base)
        archive_path = f"{make_archive_folder_name(runtime)}/{paths.agent_folder(name)}"
        agents = survey_agents(base).agents
        if name in agents and (creator := agents[name].created_by):
            for file in map(paths.resume_file, agents):
                replace_creator(base, file, name, creator)
        # First: after a kill in between the person is asked again, and no agent inherits an approval.
        remove_standing_approvals(base, name)
        fs.move(Path(base), paths.agent_folder(name), archive_path)
    referrers = find_referring_agents(base, name)
    readers = [referrer for referrer, places in referrers.items() if "permissions.read_outboxes" in places]
    facts = {"agent": name, "aside": archive_path, "readers": readers, "named_in": referrers, "is_mended": mend}
    print_json("removed", facts)
    print_data(archive_path)
    _remove_references(context, name, referrers, mend=mend)
    print_notice(f"to restore it: mv {archive_path} {paths.agent_folder(name)}")


def _remove_references(context: CommandContext, name: str, referrers: dict[str, list[str]], *, mend: bool) -> None:
    """Remove a deleted agent's name from other resumes if requested; otherwise list the references."""
    for referrer, pointers in referrers.items():
        print_notice(f'{referrer} still names "{name}": {", ".join(pointers)} in agents/{referrer}/resume.json')
    if referrers and not mend and can_ask():
        mend = typer.confirm(f'Remove "{name}" there?', err=True)
    if mend:
        for referrer in referrers:
            print_data(remove_references(context.org, referrer, name))
    elif referrers:
        print_notice(f"`lemming agents rm {name} --mend` removes it there")


def _require_no_open_tick(base: OrgPath) -> None:
    """Raise `UsageError` if the current tick was interrupted."""
    tick = load_tick(base)
    if is_tick_incomplete(base, tick):
        raise UsageError(f"tick {tick} is not finished", hint="finish it with `lemming run-once`, then try again")
