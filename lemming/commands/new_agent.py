"""`lemming agents new`: a resume out of flags, and whatever has to agree with it in the resumes of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from lemming.commands.options import Here, argument, find_agent, option, path_of_new_agent
from lemming.commands.screen import show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.exchange.applying import surroundings
from lemming.exchange.shorthand import (
    DEFAULT_CREDITS,
    PLACEHOLDER,
    default_wake,
    title_of,
    with_words,
)
from lemming.facts.next_turn import next_turn
from lemming.facts.structure_problems import waits_for_its_name
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, load_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, ToolError, UnknownModel, UsageError
from lemming.kernel.base.jsontext import nearest, parse, pretty
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.files import fs
from lemming.kernel.files.stamps import is_there
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import WITH_TOOLS, is_for_a_person, takes_turns, warn_of_tools
from lemming.kernel.tick.soundness.judged import judged
from lemming.kernel.tools import toolset_of, why_no_server
from lemming.service.add_item import add_to_resume
from lemming.timeline.renaming import forget_approvals


def new_agent(
    here: Here,
    name: Annotated[str, argument("NAME", f"{paths.AGENT_NAME_RULE.capitalize()}.")],
    other: Annotated[
        str | None,
        option(
            "--from OTHER",
            "Begin with the resume of this agent; the other options change it.",
            of_agents=True,
        ),
    ] = None,
    title: Annotated[str, option("--title TEXT", "What it is called in tables and prompts.")] = "",
    instructions: Annotated[str, option("--instructions TEXT", "What it is told to be and do.")] = "",
    model: Annotated[
        str | None, option("--model KEY", 'A key of config/models.json; "default" without one.')
    ] = None,
    read: Annotated[
        list[str] | None,
        option("--read NAME", 'An agent whose outbox it reads; "*" is all. May be repeated.', of_agents=True),
    ] = None,
    tool: Annotated[list[str] | None, option("--tool NAME", "A tool it may call. May be repeated.")] = None,
    allow_read: Annotated[
        list[str] | None,
        option(
            "--allow-read PATH",
            "A folder whose files its tools may read, such as ./shared. May be repeated; "
            "./workspace without one.",
        ),
    ] = None,
    allow_write: Annotated[
        list[str] | None,
        option(
            "--allow-write PATH",
            "A folder whose files its tools may write. May be repeated; ./workspace without one.",
        ),
    ] = None,
    every: Annotated[int | None, option("--every N", "Fire every N ticks.", min=1)] = None,
    offset: Annotated[int | None, option("--offset N", "Shift the firing by so many ticks.")] = None,
    cron: Annotated[
        str | None, option("--cron EXPRESSION", 'Fire by the clock: "0 9 * * 1-5"; docs/time.md.')
    ] = None,
    timezone: Annotated[
        str | None, option("--timezone ZONE", "Whose clock. Default: this machine's.")
    ] = None,
    wake: Annotated[
        Literal["always", "changed", "addressed"] | None,
        option(
            "--wake WHEN",
            "changed: a due turn is taken only if something it reads has changed; addressed: only if "
            "something names it; always: each.",
        ),
    ] = None,
    steps: Annotated[
        int | None, option("--steps N", "Model calls a turn may make to use tools.", min=1, max=50)
    ] = None,
    kinds: Annotated[
        list[str] | None, option("--kinds KIND", "A kind of entry it may write. May be repeated, or a,b.")
    ] = None,
    ask: Annotated[
        list[str] | None,
        option(
            "--ask NAME", "An agent it may ask: both read each other then. May be repeated.", of_agents=True
        ),
    ] = None,
    asked_by: Annotated[
        list[str] | None,
        option(
            "--asked-by NAME",
            "An agent that may ask it: both read each other, and it wakes when asked. May be repeated.",
            of_agents=True,
        ),
    ] = None,
    approve: Annotated[
        list[str] | None,
        option(
            "--approve WHAT",
            "Tools, or classes (write, send, execute), whose calls wait for a person. Or a,b.",
        ),
    ] = None,
    strategy: Annotated[str | None, option("--strategy NAME", "react, plan_execute or reflexion.")] = None,
    budget: Annotated[
        str | None, option("--budget N", 'Credits in all, dollars ("$2") or "9000 tokens".')
    ] = None,
) -> None:
    """Make an agent: write agents/NAME/resume.json. It takes its turns when something it reads has changed.

    What has to agree with it in resumes of others is written too: whom it asks reads it.

    \b
    Examples:
      lemming agents new critic --read editor --instructions "Say what is missing in the headline."
      lemming agents new radio --from editor --read human
      lemming agents new clerk --read human --tool file_write --allow-write ./shared --steps 3
      lemming agents new radio --read human --cron "0 9 * * 1-5"
      lemming agents new scout --asked-by lead --tool http_get --budget '$2'
      lemming agents new deployer --read human --tool shell --approve execute,send
    """
    base, asked, asking = here.org, _split(ask), _split(asked_by)
    _require_there(base, [*asked, *asking])
    said = {
        "does": instructions or None, "model": model, "read": read, "tools": _split(tool),
        "may_read": allow_read, "may_write": allow_write, "every": every, "offset": offset, "cron": cron,
        "timezone": timezone, "wake": wake, "steps": steps, "kinds": _kinds_in(_split(kinds)), "ask": asked,
        "approve": _split(approve), "strategy": strategy, "budget": budget,
    }  # fmt: skip
    plain = plain_of(base, other) if other else _blank()
    if not other and wake is None:
        plain["schedule"]["wake"] = "addressed" if asking and not cron else default_wake(said)
    heard = read if read is not None else plain.get("permissions", {}).get("read_outboxes", [])
    said["read"] = [*dict.fromkeys([*heard, *asked, *asking])]
    plain |= {"name": name, "title": title or title_of(name)}
    around = surroundings(survey_agents(base).agents, load_settings(base))
    plain = with_words(plain, {word: it for word, it in said.items() if it not in (None, [])}, around)
    _may_come_later(base, plain)
    create(base, name, plain, as_json=here.as_json)
    others = [add_to_resume(base, it, READS, name) for it in [*asked, *asking]]
    others += [add_to_resume(base, it, ("team", "ask"), name) for it in asking]
    for file in filter(None, dict.fromkeys(others)):
        show(str(base / file)) if not here.as_json else None


READS = ("permissions", "read_outboxes")


def _split(words: list[str] | None) -> list[str]:
    return [it.strip() for word in words or [] for it in word.split(",") if it.strip()]


def _require_there(base: OrgPath, names: list[str]) -> None:
    """Raise `UsageError` for a team that is not there: half of it would stand in no resume."""
    known = survey_agents(base).agents
    for name in names:
        if name not in known:
            near = nearest(name, list(known)) or f"agents: {', '.join(known)}"
            hint = f"{near}; or first: lemming agents new {name}"
            raise UsageError(f'there is no agent "{name}" to be in a team', hint=hint)


def _may_come_later(base: OrgPath, plain: dict[str, Any]) -> None:
    """Have an agent that reads somebody who is not there yet take its turns all the same."""
    survey = survey_agents(base)
    known = {"*", plain["name"], *survey.agents, *survey.broken}
    if {*plain["permissions"].get("read_outboxes", [])} - known:
        plain["permissions"]["may_be_absent"] = True


def _blank() -> dict[str, Any]:
    return {
        "name": "",
        "title": "",
        "model": {"key": "default"},
        "permissions": {
            "read_outboxes": [],
            "tools": [],
            "file_access": {"allow_read": ["./workspace"], "allow_write": ["./workspace"]},
        },
        "schedule": {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"},
        "instructions": PLACEHOLDER,
        "credits": dict(DEFAULT_CREDITS),
    }


def plain_of(base: OrgPath, other: str) -> dict[str, Any]:
    """Return an agent's resume as it is written; raise what is wrong with it."""
    find_agent(base, other)
    raw = fs.read_bytes(base / paths.resume_file(other), RESUME_LIMIT_BYTES)
    plain: dict[str, Any] = parse(raw, allow_bom=True)
    return plain


def _kinds_in(words: list[str]) -> list[str]:
    for kind in words:
        if kind not in MESSAGE_KINDS:
            raise UsageError(f'there is no kind "{kind}"', hint=f"kinds: {', '.join(MESSAGE_KINDS)}")
    return words


def create(base: OrgPath, name: str, plain: dict[str, Any], *, as_json: bool) -> None:
    """Write the resume of a new agent, and say when it fires and what to do next."""
    file, content = f"{path_of_new_agent(name)}/resume.json", pretty(plain)
    _refuse_bad_choices(base, plain)
    _refuse_what_would_not_run(base, decode_resume(name, content).value)
    forget_former(base, [name])
    # What it holds already is what a command that was cut off wrote: the same again does the rest.
    if not fs.create(Path(base), file, content) and not fs.holds(base / file, content):
        raise UsageError(f'there is an agent "{name}" already', where=file, hint="edit its resume")
    agent = load_agent(base, name)
    if as_json:
        show_json("agent", {"agent": name, "resume": agent.plain, "problem": ""})
        return
    show(str(base / file))
    _tell_next(base, agent)


def forget_former(base: OrgPath, names: Iterable[str]) -> bool:
    """Have gates ask about agents that are about to be made, whatever they say of former ones; tell which.

    Return True where a file was changed.
    """
    is_changed = False
    for name in names:
        if is_there(f"{base}/{paths.resume_file(name)}"):
            continue
        for said in forget_approvals(base, name):
            is_changed = True
            tell(f'{said}: gates ask about "{name}" again; what it said was of a former agent of that name')
    return is_changed


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
    except UnknownModel as error:
        raise UsageError(error.message, where=error.where, hint=error.hint) from error
    except ToolError as error:
        hint = f"{error.hint}; or write it: lemming tools new NAME"
        raise UsageError(error.message, where=error.where, hint=hint) from error


def _refuse_what_would_not_run(base: OrgPath, agent: Agent) -> None:
    """Raise `ConfigError` for gates, grants, a team or a strategy about what is not there."""
    survey, config = survey_agents(base), load_config(base)
    with_it = replace(survey, agents={**survey.agents, agent.name: agent})
    error = judged(base, config, with_it).survey.broken.get(agent.name)
    if error and agent.name not in survey.broken:
        raise error
    if agent.turn.strategy is None:
        return
    from lemming.capabilities.strategies.problems import problems_of_strategy

    problems = tuple(it for it in problems_of_strategy(base, agent, config) if it.severity == "error")
    if problems:
        raise ConfigError(str(problems[0]), problems=problems)


def _tell_next(base: OrgPath, agent: Agent) -> None:
    name, known = agent.name, survey_agents(base)
    for author in agent.permissions.read_outboxes:
        if author != "*" and author not in {*known.agents, *known.broken}:
            tell(
                f'warning: it reads "{author}", and there is no such agent yet: lemming agents new {author}',
                style="yellow",
            )
    if is_for_a_person(agent, load_config(base)):
        tell(f"a person speaks for {name}: `lemming send --as {name} TEXT`")
        return
    if not takes_turns(agent, load_config(base)):
        tell(f"a channel speaks for {name}: `lemming channels` shows what comes and goes")
        return
    if why := warn_of_tools(agent, load_config(base)):
        tell(f"warning: {why}; {WITH_TOOLS}", style="yellow")
    first = next_turn(base, agent, load_config(base), load_tick(base))
    when = f"in {first.words}" if first.tick is not None else first.words
    tell(f"{name} fires first {when}; `lemming prompt {name}` shows its prompt")
    for remark in waits_for_its_name(known.agents, load_config(base), [name]):
        tell(remark)
    hears = agent.permissions.read_outboxes or agent.context
    if not hears and agent.schedule.wake == "changed":
        tell(
            "it reads nobody, so it takes one turn and rests; --read NAME gives it news, --wake always turns"
        )
