"""`lemming agents new`, `copy`, `rename` and `rm`: who works here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lemming.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, load_agent, survey_agents
from lemming.base import paths
from lemming.base.jsontext import parse, pretty
from lemming.base.kinds import MESSAGE_KINDS
from lemming.commands.options import AgentName, AsJson, agent_names
from lemming.commands.org import find_agent, find_org, has_been_interrupted, path_of_agent, require_folder
from lemming.commands.screen import show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.errors import ToolError, UnknownModel, UsageError
from lemming.facts.next_turn import next_turn
from lemming.files import fs
from lemming.org.config import load_config
from lemming.org.organisation import OrgPath
from lemming.plugins.capabilities import PREFIXES
from lemming.tick.counter import load_tick
from lemming.tick.plan import is_for_a_person, takes_turns, why_no_tools
from lemming.tick.rename_begun import rename_begun, require_no_rename
from lemming.tick.runtime import open_org
from lemming.timeline.renaming import creator_replaced, rename
from lemming.timeline.repair.repair import place_aside
from lemming.tools import toolset_of, why_no_server

PLACEHOLDER = "Describe here what this agent is for and what it should write."
NewName = Annotated[str, typer.Argument(metavar="NEW", help=f"{paths.AGENT_NAME_RULE.capitalize()}.")]


def new_agent(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{paths.AGENT_NAME_RULE.capitalize()}.")],
    other: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OTHER",
            help="Begin with the resume of this agent; the other options change it.",
            autocompletion=agent_names,
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="What it is called in tables and prompts.")
    ] = "",
    instructions: Annotated[
        str, typer.Option("--instructions", metavar="TEXT", help="What it is told to be and do.")
    ] = "",
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="KEY", help='A key of config/models.json; "default" without one.'),
    ] = None,
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
    allow_read: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-read",
            metavar="PATH",
            help="A folder whose files its tools may read, such as ./shared. May be repeated; "
            "./workspace without one.",
        ),
    ] = None,
    allow_write: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-write",
            metavar="PATH",
            help="A folder whose files its tools may write. May be repeated; ./workspace without one.",
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option("--every", min=1, metavar="N", help="Fire every N ticks.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="N", help="Shift the firing by so many ticks.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="EXPRESSION", help='Fire by the clock: "0 9 * * 1-5"; docs/time.md.'),
    ] = None,
    wake: Annotated[
        Literal["always", "changed", "addressed"] | None,
        typer.Option(
            "--wake",
            metavar="WHEN",
            help="changed: a due turn is taken only if something it reads has changed; addressed: only if "
            "something names it; always: each.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, max=50, metavar="N", help="Model calls a turn may make to use tools."),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kinds", metavar="KIND", help="A kind of entry it may write. May be repeated, or a,b."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an agent: write agents/NAME/resume.json. It takes its turns when something it reads has changed.

    \b
    Examples:
      lemming agents new critic --read editor --instructions "Say what is missing in the headline."
      lemming agents new radio --from editor --read human
      lemming agents new clerk --read human --tool file_write --allow-write ./shared --steps 3
      lemming agents new radio --read human --cron "0 9 * * 1-5"
    """
    base = find_org(ctx)
    plain = _plain_of(base, other) if other else _blank()
    chosen = _kinds_in(kinds or [])
    permissions, schedule = plain.setdefault("permissions", {}), plain.setdefault("schedule", {})
    access = permissions.setdefault(
        "file_access", {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
    )
    _put(plain, name=name, title=title or name.replace("_", " ").replace("-", " ").title())
    _put(plain, instructions=instructions or plain.get("instructions") or PLACEHOLDER)
    _put(plain, model={**plain["model"], "key": model} if model else None)
    _put(permissions, read_outboxes=read, tools=tool)
    _put(access, allow_read=allow_read, allow_write=allow_write)
    _put(schedule, run_every_n_ticks=every, phase_offset=offset, cron=cron, wake=wake)
    if steps or chosen:
        _put(plain.setdefault("turn", {}), max_steps=steps, kinds=chosen or None)
    _create(base, name, plain, as_json=as_json)


def copy_agent(ctx: typer.Context, name: AgentName, new: NewName, as_json: AsJson = False) -> None:
    """Make an agent with the resume of another. Memory, entries and credits spent are not copied.

    \b
    Example:
      lemming agents copy editor night-editor
    """
    base = find_org(ctx)
    plain = _plain_of(base, name)
    _create(base, new, {**plain, "name": new}, as_json=as_json)


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


# --- making one ----------------------------------------------------------------------------------


def _blank() -> dict[str, Any]:
    return {
        "name": "",
        "title": "",
        "model": {"key": "default"},
        "permissions": {"read_outboxes": [], "tools": []},
        "schedule": {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"},
        "instructions": "",
        "credits": {"max_credits": 1000, "soft_cap": 500},
    }


def _plain_of(base: OrgPath, other: str) -> dict[str, Any]:
    """Return an agent's resume as it is written; raise what is wrong with it."""
    find_agent(base, other)
    raw = fs.read_bytes(base / paths.resume_file(other), RESUME_LIMIT_BYTES)
    plain: dict[str, Any] = parse(raw, allow_bom=True)
    return plain


def _put(block: dict[str, Any], **values: Any) -> None:
    block.update({key: value for key, value in values.items() if value is not None})


def _kinds_in(words: list[str]) -> list[str]:
    kinds = [kind.strip() for word in words for kind in word.split(",") if kind.strip()]
    for kind in kinds:
        if kind not in MESSAGE_KINDS:
            raise UsageError(f'there is no kind "{kind}"', hint=f"kinds: {', '.join(MESSAGE_KINDS)}")
    return kinds


def _create(base: OrgPath, name: str, plain: dict[str, Any], *, as_json: bool) -> None:
    """Write the resume of a new agent, and say when it fires and what to do next."""
    file, content = f"{path_of_agent(name)}/resume.json", pretty(plain)
    _refuse_bad_choices(base, plain)
    decode_resume(name, content)
    if not fs.create(Path(base), file, content):
        raise UsageError(f'there is an agent "{name}" already', where=file, hint="edit its resume")
    agent = load_agent(base, name)
    if as_json:
        show_json("agent", {"agent": name, "resume": agent.plain, "problem": ""})
        return
    show(str(base / file))
    _tell_next(base, agent)


def _refuse_bad_choices(base: OrgPath, plain: dict[str, Any]) -> None:
    """Raise `UsageError` for an unknown model key or tool."""
    config = load_settings(base)
    try:
        config.model(plain.get("model", {}).get("key", "default"))
        for tool in plain["permissions"].get("tools", []):
            if tool.startswith(PREFIXES):
                if wrong := why_no_server(base, tool, today=True):
                    raise UsageError(wrong[0], hint=wrong[1])
            else:
                toolset_of(config.org, base).find(tool)
    except (UnknownModel, ToolError) as error:
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def _tell_next(base: OrgPath, agent: Agent) -> None:
    name, known = agent.name, survey_agents(base)
    for author in agent.permissions.read_outboxes:
        if author != "*" and author not in {*known.agents, *known.broken}:
            tell(f'warning: it reads "{author}", and there is no such agent yet', style="yellow")
    if is_for_a_person(agent, load_config(base)):
        tell(f"a person speaks for {name}: `lemming send --as {name} TEXT`")
        return
    if not takes_turns(agent, load_config(base)):
        tell(f"a channel speaks for {name}: `lemming channels` shows what comes and goes")
        return
    if why := why_no_tools(agent, load_config(base)):
        mend = 'take another (--model), or set it to "full" in config/models.json'
        tell(f"warning: {why}; {mend}", style="yellow")
    first = next_turn(agent, load_config(base), load_tick(base))
    when = f"in {first.words}" if first.tick is not None else first.words
    tell(f"{name} fires first {when}; `lemming prompt {name}` shows its prompt")
    hears = agent.permissions.read_outboxes or agent.context
    if not hears and agent.schedule.wake == "changed":
        tell(
            "it reads nobody, so it takes one turn and rests; --read NAME gives it news, --wake always turns"
        )


def _require_no_open_tick(base: OrgPath) -> None:
    tick = load_tick(base)
    if has_been_interrupted(base, tick):
        raise UsageError(
            f"tick {tick} is not finished", hint="`lemming run-once` finishes it; then try again"
        )
