"""`lemming agents new`: build a resume from options and update the resumes of the team."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from lemming.commands.command_context import CommandContext, argument, find_agent, get_new_agent_path, option
from lemming.commands.terminal import print_data, print_json, print_notice, print_warning
from lemming.commands.trust import load_settings
from lemming.import_export.apply_document import build_defaults
from lemming.import_export.resume_shorthand import apply_shorthand, default_title, expand_shorthand, get_default_wake
from lemming.journal_tools.agent_rename import remove_standing_approvals
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, load_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.errors import ConfigError, ToolError, UnknownModel, UsageError
from lemming.kernel.base.jsontext import did_you_mean, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import PREFIXES, STRATEGIES
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.tick.validation.checks import AgentSubject
from lemming.kernel.tools import get_toolset, missing_server_tool_reason
from lemming.libraries.settings_edits import append_item
from lemming.queries.checks.file_checks import find_order_conflicts
from lemming.queries.model_readiness import WITH_TOOLS, small_model_warning
from lemming.queries.next_turn import find_next_turn
from lemming.queries.org_validation import run_capability_check


def new_agent(
    context: CommandContext,
    name: Annotated[str, argument("NAME", f"{paths.AGENT_NAME_RULE.capitalize()}.")],
    other: Annotated[
        str | None,
        option("--copy-from AGENT", "Start from this agent's resume; other options override it."),
    ] = None,
    title: Annotated[str, option("--title TEXT", "Title shown in tables and prompts.")] = "",
    instructions: Annotated[str, option("--instructions TEXT", "Instructions for the agent's model.")] = "",
    model: Annotated[str | None, option("--model KEY", 'Key in config/models.json. Default: "default".')] = None,
    read: Annotated[
        list[str] | None,
        option("--read AGENT", 'Agent whose outbox it may read; "*" for all. Repeatable.'),
    ] = None,
    tool: Annotated[list[str] | None, option("--tool NAME", "Tool it may call. Repeatable.")] = None,
    allow_read: Annotated[
        list[str] | None,
        option("--allow-read PATH", "Folder its tools may read, such as ./shared. Repeatable. Default: ./workspace."),
    ] = None,
    allow_write: Annotated[
        list[str] | None, option("--allow-write PATH", "Folder its tools may write. Repeatable. Default: ./workspace.")
    ] = None,
    every: Annotated[int | None, option("--every N", "Run every N ticks.", min=1)] = None,
    offset: Annotated[int | None, option("--offset N", "Shift the schedule by N ticks.")] = None,
    cron: Annotated[
        str | None, option("--cron EXPRESSION", 'Run on a cron schedule: "0 9 * * 1-5" (docs/settings.md).')
    ] = None,
    timezone: Annotated[
        str | None, option("--timezone ZONE", "Time zone of the cron schedule. Default: this machine's.")
    ] = None,
    wake: Annotated[
        Literal["always", "changed", "addressed"] | None,
        option(
            "--wake WHEN",
            "When a due turn runs: changed (its inputs changed), addressed (an entry names it) or always.",
        ),
    ] = None,
    steps: Annotated[
        int | None, option("--max-steps N", "Maximum number of model calls per turn.", min=1, max=50)
    ] = None,
    kinds: Annotated[
        list[str] | None, option("--kinds KIND", "Entry kind it may write. Repeatable, or comma-separated.")
    ] = None,
    ask: Annotated[
        list[str] | None,
        option("--ask AGENT", "Agent it may ask; lets both read each other. Repeatable."),
    ] = None,
    asked_by: Annotated[
        list[str] | None,
        option(
            "--asked-by AGENT", "Agent that may ask it; lets both read each other and wakes it when asked. Repeatable."
        ),
    ] = None,
    approve: Annotated[
        list[str] | None,
        option(
            "--approve WHAT",
            "Tools or tool classes (write, send, execute) that need approval. Repeatable, or comma-separated.",
        ),
    ] = None,
    strategy: Annotated[str | None, option("--strategy NAME", "Strategy: react, plan_execute or reflexion.")] = None,
    budget: Annotated[
        str | None, option("--budget N", 'Spending limit: credits, dollars ("$2") or "9000 tokens".')
    ] = None,
) -> None:
    """Create an agent: write agents/NAME/resume.json.

    By default, a change of the agent's inputs triggers its turns.

    Resumes of other agents are updated to match: agents given by --ask can read the new agent.

    \b
    Examples:
      lemming agents new critic --read editor --instructions "Say what is missing in the headline."
      lemming agents new radio --copy-from editor --read human
      lemming agents new clerk --read human --tool file_write --allow-write ./shared --max-steps 3
      lemming agents new radio --read human --cron "0 9 * * 1-5"
      lemming agents new scout --asked-by lead --tool http_get --budget '$2'
      lemming agents new deployer --read human --tool shell --approve execute,send
    """
    base, assignees, askers = context.org, _split_list(ask), _split_list(asked_by)
    agents, kind_names = survey_agents(base).agents, _split_list(kinds)
    for missing in (member for member in [*assignees, *askers] if member not in agents):
        suggestion = did_you_mean(missing, list(agents)) or f"agents: {', '.join(agents)}"
        hint = f"{suggestion}; or create it first: lemming agents new {missing}"
        raise UsageError(f'there is no agent "{missing}" for the team', hint=hint)
    for kind in (kind for kind in kind_names if kind not in MESSAGE_KINDS):
        raise UsageError(f'--kind must be one of {", ".join(MESSAGE_KINDS)}, got "{kind}"')
    shorthand = {
        "does": instructions or None, "model": model, "read": read, "tools": _split_list(tool),
        "may_read": allow_read, "may_write": allow_write, "every": every, "offset": offset, "cron": cron,
        "timezone": timezone, "wake": wake, "steps": steps, "kinds": kind_names, "ask": assignees,
        "approve": _split_list(approve), "strategy": strategy, "budget": budget,
    }  # fmt: skip
    schedule, workspace = {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"}, ["./workspace"]
    blank: dict[str, Any] = {"schedule": schedule, "may_read": workspace, "may_write": workspace}
    resume = read_resume_json(base, other) if other else expand_shorthand("", blank)
    if not other and wake is None:
        resume["schedule"]["wake"] = "addressed" if askers and not cron else get_default_wake(shorthand)
    read_outboxes = read if read is not None else resume.get("permissions", {}).get("read_outboxes", [])
    shorthand["read"] = [*dict.fromkeys([*read_outboxes, *assignees, *askers])]
    resume |= {"name": name, "title": title or default_title(name)}
    defaults = build_defaults(agents, load_settings(base))
    resume = apply_shorthand(resume, {key: item for key, item in shorthand.items() if item not in (None, [])}, defaults)
    survey = survey_agents(base)
    if {*resume["permissions"].get("read_outboxes", [])} - {"*", name, *survey.agents, *survey.broken}:
        resume["permissions"]["may_be_absent"] = True  # or the agent could not run
    write_new_agent(base, name, resume)
    changed_files = [append_item(base, item, _READ_OUTBOXES_PATH, name) for item in [*assignees, *askers]]
    changed_files += [append_item(base, item, ("team", "ask"), name) for item in askers]
    for file in filter(None, dict.fromkeys(changed_files)):
        print_data(str(base / file))


_READ_OUTBOXES_PATH = ("permissions", "read_outboxes")


def _split_list(values: list[str] | None) -> list[str]:
    """Split comma-separated values into a list without empty items."""
    return [item.strip() for value in values or [] for item in value.split(",") if item.strip()]


def read_resume_json(base: OrgPath, name: str) -> dict[str, Any]:
    """Return an agent's resume as written. Raises `ConfigError` for a broken resume."""
    find_agent(base, name)
    raw = fs.read_bytes(base / paths.resume_file(name), RESUME_LIMIT_BYTES)
    resume: dict[str, Any] = parse(raw, allow_bom=True)
    return resume


def write_new_agent(base: OrgPath, name: str, resume: dict[str, Any]) -> None:
    """Write the resume of a new agent; print the first turn and the next steps."""
    file, content = f"{get_new_agent_path(name)}/resume.json", dump_pretty(resume)
    _reject_unknown_choices(base, resume)
    _reject_invalid_resume(base, decode_resume(name, content).value)
    forget_former_agents(base, [name])
    # The existing files are those of an interrupted command: a repeat completes them.
    if not fs.create(Path(base), file, content) and not fs.has_content(base / file, content):
        raise UsageError(f'there is an agent "{name}" already', where=file, hint="edit its resume")
    agent = load_agent(base, name)
    print_json("agent", {"agent": name, "resume": agent.as_json, "problem": ""})
    print_data(str(base / file))
    _print_next_steps(base, agent)


def forget_former_agents(base: OrgPath, names: Iterable[str]) -> bool:
    """Delete and print standing approvals of former agents with these names. Return True if a file was changed."""
    is_changed = False
    for name in names:
        if path_exists(f"{base}/{paths.resume_file(name)}"):
            continue
        for changed_file in remove_standing_approvals(base, name):
            is_changed = True
            print_notice(f'{changed_file}: removed the standing approvals of a former agent named "{name}"')
    return is_changed


def _reject_unknown_choices(base: OrgPath, resume: dict[str, Any]) -> None:
    """Raise `UsageError` for an unknown model key or tool."""
    config = load_settings(base)
    try:
        config.model(resume.get("model", {}).get("key", "default"))
        for tool in resume["permissions"].get("tools", []):
            if tool.startswith(PREFIXES):
                if server_problem := missing_server_tool_reason(base, tool, today=True):
                    raise UsageError(server_problem[0], hint=server_problem[1])
            else:
                get_toolset(config.org, base).find(tool)
    except UnknownModel as error:
        raise UsageError(error.message, where=error.where, hint=error.hint) from error
    except ToolError as error:
        hint = f"{error.hint}; or create it: lemming tools new NAME"
        raise UsageError(error.message, where=error.where, hint=hint) from error


def _reject_invalid_resume(base: OrgPath, agent: Agent) -> None:
    """Raise `ConfigError` for gates, grants, a team or a strategy with missing references."""
    survey, config = survey_agents(base), load_config(base)
    extended_survey = replace(survey, agents={**survey.agents, agent.name: agent})
    error = validate_survey(base, config, extended_survey).survey.broken.get(agent.name)
    if error and agent.name not in survey.broken:
        raise error
    if agent.turn.strategy is None:
        return
    subject = AgentSubject(org=Organisation.from_path(base), config=config, agent=agent)
    problems = tuple(filter(attrgetter("is_error"), run_capability_check(STRATEGIES, "agent", subject)))
    if problems:
        raise ConfigError(str(problems[0]), problems=problems)


def _print_next_steps(base: OrgPath, agent: Agent) -> None:
    """Print warnings, the first turn and the next steps for a new agent."""
    name, survey = agent.name, survey_agents(base)
    for author in agent.permissions.read_outboxes:
        if author != "*" and author not in {*survey.agents, *survey.broken}:
            near = did_you_mean(author, [*survey.agents])
            meant = f"{near} (in its read_outboxes)" if near else f"lemming agents new {author}"
            print_warning(f'warning: it reads "{author}", which does not exist yet: {meant}')
    if load_config(base).is_person(agent):
        print_notice(f"a person speaks for {name}: `lemming send --as {name} TEXT`")
        return
    if not load_config(base).has_model_turns(agent):
        print_notice(f"a channel speaks for {name}: `lemming channels` shows what comes and goes")
        return
    if tool_warning := small_model_warning(agent, load_config(base)):
        print_warning(f"warning: {tool_warning}; {WITH_TOOLS}")
    upcoming = find_next_turn(base, agent, load_config(base), load_tick(base))
    time_text = f"in {upcoming.description}" if upcoming.tick is not None else upcoming.description
    print_notice(f"{name} runs first {time_text}; `lemming prompt {name}` shows its prompt")
    for remark in find_order_conflicts(survey.agents, load_config(base), [name]):
        print_notice(remark)
    has_inputs = agent.permissions.read_outboxes or agent.context
    if not has_inputs and agent.schedule.wake == "changed":
        print_notice("it reads no other agent, so it runs once and then is skipped; use --read NAME, or --wake always")
