"""`list_agents` and `create_agent`: who works here, and hiring."""

from __future__ import annotations

from math import floor
from typing import Annotated, Any

from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, agent_folders, decode_resume, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, PermissionDenied, ToolError
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files import fs
from lemming.kernel.files.documents import read_text
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fitting import about
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.config import ORG_FILE, Org, credits_of, load_config
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.tools import EngineTool, Places, ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext


class ListAgents(EngineTool):
    """Lists the organisation's agents."""

    name = "list_agents"
    description = "List all agents: name and title."
    tool_class = "read"
    always_allowed = True
    keeps_deadline = True

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return the resumes of all."""
        return {paths.ALL_RESUMES: f"tool {self.name}"}

    def plan(self, context: ToolContext) -> ToolResult:
        """Return one line an agent, sorted by name. Why a resume is broken is for people, not for agents."""
        survey = survey_agents(context.org)
        titles = {name: agent.title for name, agent in survey.agents.items()}
        titles |= dict.fromkeys(survey.broken, "(out of service: its resume is broken)")
        titles |= _staged_titles(context)
        return ToolResult(True, "\n".join(_line(name, title) for name, title in sorted(titles.items())))


class CreateAgent(EngineTool):
    """Writes the resume of a new agent, which can do no more than its creator."""

    name = "create_agent"
    description = "Create an agent. It can get no tool and read no outbox that you have not."
    tool_class = "administer"
    keeps_deadline = True
    success_is_news = False

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule: the organisation has its say beside the resume."""
        setting = f"config/org.json create_agent_allowed {settings.create_agent_allowed}"
        is_allowed = agent.name in settings.create_agent_allowed
        return super().why_refused(agent, settings) or ("" if is_allowed else f"refused by {setting}")

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return the resumes of all: a new one is the newcomer's own."""
        return {paths.ALL_RESUMES: f"tool {self.name}"}

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless the file is the resume of an agent that this one may create, and nobody else's."""
        _require_creatable(context, _new_agent(context, effect))

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, about("A new name: a-z, 0-9, _ and -.")],
        title: Annotated[str, about("What the agent is called.")],
        instructions: Annotated[str, about("What the agent is to be and do.", min_length=1)],
        read_outboxes: Annotated[list[str], about('Agents whose entries it reads; "*": all.')] = [],  # noqa: B006
        tools: Annotated[list[str], about("Tools it may call, out of yours.")] = [],  # noqa: B006 - left out when not given
        run_every_n_ticks: Annotated[int, about("It runs every so many ticks.", ge=1)] = 1,
        phase_offset: Annotated[int, about("Shifts its runs by so many ticks.")] = 0,
        model_key: Annotated[str, about("A key of config/models.json; empty: yours.")] = "",
        max_credits: Annotated[
            float, about("Credits it gets, out of yours; 0: half of what you have left.", ge=0)
        ] = 0.0,
    ) -> ToolResult:
        """Return the effect that writes the resume, and the credits that the new agent gets."""
        _refuse_name(context, name)
        _refuse_too_many(context)
        _refuse_too_deep(context)
        _refuse_more_than_own(context, tools, read_outboxes)
        credits, passed_on = _credits(context, max_credits)
        resume = {
            "name": name,
            "title": title,
            "model": {"key": _model_key(context, model_key)},
            "permissions": {
                "read_outboxes": read_outboxes,
                "tools": tools,
                "file_access": context.agent.plain["permissions"]["file_access"],
            },
            "schedule": {
                "run_every_n_ticks": run_every_n_ticks,
                "phase_offset": phase_offset,
                "wake": "changed",
            },
            "instructions": instructions,
            "credits": credits,
            "created_by": context.agent.name,
        }
        if gates := context.agent.plain.get("gates"):  # what it may not, its creature may not
            resume["gates"] = gates
        effect = FileEffect(paths.resume_file(name), _checked(resume))
        gets = f" and has {passed_on:g} of your credits" if passed_on else ""
        text = f"created {name}; it takes its first turn when due, not in this tick{gets}"
        return ToolResult(True, text, (effect,), passed_on)


def _line(name: str, title: str) -> str:
    return f"{name}: {' '.join(title.split())}" if title else name


def _staged_titles(context: ToolContext) -> dict[str, str]:
    resumes = {
        place.split("/")[1]: parse(content)
        for place, content in context.staged.items()
        if place.startswith("agents/") and place.endswith("/resume.json") and place.count("/") == 2
    }
    return {name: resume["title"] for name, resume in resumes.items()}


def _new_agent(context: ToolContext, effect: FileEffect) -> Agent:
    """Return the agent whose resume an effect writes; raise unless it is one, of an agent not there yet."""
    name = effect.path.split("/")[1] if effect.path.count("/") == 2 else ""
    if effect.root or not paths.AGENT_NAME.match(name) or effect.path != paths.resume_file(name):
        raise PermissionDenied(f"create_agent: {effect.place} is no resume")
    created = read_text(effect.content, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES).value
    try:
        there = fs.read_bytes(context.base / effect.path, RESUME_LIMIT_BYTES)
        if there != effect.content:  # what a power cut left of it is no resume
            read_text(there, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES)
            raise PermissionDenied(f'create_agent: there is an agent "{name}" already')
    except (FileNotFoundError, ConfigError):
        pass
    except OSError as error:
        raise CorruptState(str(error), where=effect.path) from error
    return created


def _require_creatable(context: ToolContext, created: Agent) -> None:
    """Raise `PermissionDenied` for an agent that gets more than its creator may pass on now."""
    permissions, own = created.permissions, context.agent
    _refuse_more_than_own(context, permissions.tools, permissions.read_outboxes)
    _model_key(context, created.model.key)
    limits: AgentCredits = credits_of(load_config(context.org), own.name, own.credits)
    gets, most = created.credits.max_credits, limits.max_credits
    if (
        created.name == "human"
        or permissions.file_access != own.permissions.file_access
        or created.context
        or permissions.read_memories
        or created.model.fallback
        or created.plain.get("gates") != own.plain.get("gates")
    ):
        raise PermissionDenied(f'create_agent: "{created.name}" would get more than {own.name} has')
    if most is not None and (gets is None or gets > most):
        raise PermissionDenied(f'create_agent: "{created.name}" would get more credits than {own.name} has')


def _refuse_name(context: ToolContext, name: str) -> None:
    if why := paths.why_no_new_agent(name):
        raise ToolError(f"create_agent: {why}")
    folder = paths.agent_folder(name)
    if name == "human":
        raise PermissionDenied('create_agent: "human" is the person; refused by the engine')
    is_staged = any(place.startswith(f"{folder}/") for place in context.staged)
    if is_staged or is_there(f"{context.base}/{folder}"):
        raise ToolError(f'create_agent: there is an agent "{name}" already')
    if line := _find_former_approval(context, name):
        raise PermissionDenied(
            f'create_agent: {line} lets calls of a former "{name}" pass unasked; take another name'
        )
    if name in load_config(context.org).allocations:  # it would hold, whatever the resume says
        raise PermissionDenied(f'create_agent: config/credits.json names "{name}" already; take another name')


def _find_former_approval(context: ToolContext, name: str) -> str:
    """Return the line of a gate that need not ask about an agent of this name; empty: none says so."""
    gates: Any = context.settings.further.get("gates", ())  # a resume's are about its own agent
    places = (place for place, gate in enumerate(gates) if name in gate.approved)
    return next((f"{ORG_FILE}#/gates/{place}/approved/{name}" for place in places), "")


def _refuse_more_than_own(context: ToolContext, tools: list[str], read_outboxes: list[str]) -> None:
    """Raise if the new agent would get more than its creator has. `create_agent` is never passed on."""
    creator = context.agent
    own = set(creator.permissions.tools) - {CreateAgent.name}
    known = toolset_of(context.settings, context.org).of(creator.name)
    free = {name for name in tools if name in known and known[name].always_allowed}
    free |= {name for name in tools if "*" not in name and any(is_named(name, it) for it in own)}
    free -= {CreateAgent.name}
    if too_much := sorted(set(tools) - own - free):
        raise PermissionDenied(
            f"create_agent: {', '.join(too_much)} refused by your permissions.tools",
            hint=f"you can pass on: {', '.join(sorted(own)) or 'none'}",
        )
    if unread := [name for name in read_outboxes if name != creator.name and not creator.may_read(name)]:
        raise PermissionDenied(f"create_agent: {', '.join(unread)} refused by your permissions.read_outboxes")


def _refuse_too_deep(context: ToolContext) -> None:
    """Raise when as many agents as may have created one another already."""
    most = context.settings.create_agent_max_depth
    if most is None:
        return
    agents, depth, name = survey_agents(context.org).agents, 0, context.agent.name
    while (agent := agents.get(name)) and agent.created_by and depth < most:
        depth, name = depth + 1, agent.created_by
    if depth >= most:
        limit = f"config/org.json create_agent_max_depth {most}"
        raise PermissionDenied(f"create_agent: refused by {limit}: you were created by an agent yourself")


def _refuse_too_many(context: ToolContext) -> None:
    """Raise when the turn or the organisation has as many new agents as its settings allow."""
    settings = context.settings
    if context.worked.get(CreateAgent.name, 0) >= settings.create_agent_per_turn:
        limit = f"config/org.json create_agent_per_turn {settings.create_agent_per_turn}"
        raise PermissionDenied(f"create_agent: refused by {limit}", hint="create the others in later turns")
    there = len({*agent_folders(context.base), *_staged_titles(context)})
    if there >= settings.create_agent_max_agents:
        limit = f"config/org.json create_agent_max_agents {settings.create_agent_max_agents}"
        raise PermissionDenied(f"create_agent: refused by {limit}: there are {there} agents")


def _model_key(context: ToolContext, asked: str) -> str:
    """Return the model key of the new agent: its creator's, or one that the organisation lets it give."""
    own, others = context.agent.model.key, context.settings.create_agent_models
    key = asked or own
    if key not in (own, *others):
        raise PermissionDenied(
            f'create_agent: no model key "{key}" for new agents; refused by config/org.json '
            f"create_agent_models {others}",
            hint=f"you can give: {', '.join(dict.fromkeys((own, *others)))}",
        )
    load_config(context.org).model(key)
    return key


def _credits(context: ToolContext, asked: float) -> tuple[dict[str, Any], float]:
    """Return the new agent's limits, and the credits that its creator has less for it.

    So what an agent and all that it creates may spend together is what it may spend alone.
    """
    agent = context.agent
    limits: AgentCredits = credits_of(load_config(context.org), agent.name, agent.credits)
    if limits.max_credits is None:
        return {"max_credits": asked or None, "soft_cap": limits.soft_cap}, 0.0
    used_up = read_state(context.org, agent.name).used_up if context.used_up is None else context.used_up
    left = max(limits.max_credits - used_up, 0.0)
    gets = asked or floor(left / 2 * 1e6) / 1e6  # down: halves never come to more
    if gets > left or not gets:
        raise PermissionDenied(
            f"create_agent: you have {left:g} credits left to pass on; it was to get {asked or gets:g}"
        )
    soft_cap = limits.soft_cap
    if soft_cap is not None:
        soft_cap = round(soft_cap * gets / limits.max_credits, 6)
    return {"max_credits": gets, "soft_cap": soft_cap}, gets


def _checked(resume: dict[str, Any]) -> bytes:
    """Return the resume's bytes, which `load_agent` will accept; raise `ToolError` otherwise."""
    content = pretty(resume)
    try:
        decode_resume(resume["name"], content)
    except ConfigError as error:
        raise ToolError(f"create_agent: {error}") from error
    return content
