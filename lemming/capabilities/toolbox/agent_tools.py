"""The tools `list_agents` and `create_agent`: list the agents, and create a new one."""

from __future__ import annotations

from math import floor
from typing import Annotated, Any

from lemming.ext import ConfigError, describe_field
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, PermissionDenied, ToolError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.json_documents import parse_document
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.capability_usage import resolve_credits
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.tools import EngineTool, Places, ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext


class ListAgentsTool(EngineTool):
    """Lists the organisation's agents."""

    name = "list_agents"
    description = "List all agents: name and title."
    tool_class = "read"
    always_allowed = True
    keeps_deadline = True

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the resumes of all agents."""
        return {paths.ALL_RESUMES: f"tool {self.name}"}

    def plan(self, context: ToolContext) -> ToolResult:
        """Return a line per agent, sorted by name. The error of a broken resume stays hidden from agents."""
        survey = survey_agents(context.org)
        titles = {name: agent.title for name, agent in survey.agents.items()}
        titles |= dict.fromkeys(survey.broken, "(out of service: its resume is broken)")
        titles |= _get_staged_titles(context)
        lines = [f"{name}: {' '.join(title.split())}" if title else name for name, title in sorted(titles.items())]
        return ToolResult(True, "\n".join(lines))


class CreateAgentTool(EngineTool):
    """Writes the resume of a new agent with at most its creator's permissions."""

    name = "create_agent"
    description = "Create an agent. It can get no tool and read no outbox that you have not."
    tool_class = "administer"
    keeps_deadline = True
    success_is_news = False

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the rule against a call: the organisation decides in addition to the resume."""
        rule = f"config/org.json create_agent_allowed {settings.create_agent_allowed}"
        is_allowed = agent.name in settings.create_agent_allowed
        return super().refusal_reason(agent, settings) or ("" if is_allowed else f"refused by {rule}")

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the resumes of all agents, because the new resume is among them."""
        return {paths.ALL_RESUMES: f"tool {self.name}"}

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless the file is the resume of an agent that this agent may create."""
        _require_creatable(context, _decode_new_agent(context, effect))

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, describe_field("A new name: a-z, 0-9, _ and -.")],
        title: Annotated[str, describe_field("What the agent is called.")],
        instructions: Annotated[str, describe_field("What the agent is to be and do.", min_length=1)],
        read_outboxes: Annotated[list[str], describe_field('Agents whose entries it reads; "*": all.')] = [],  # noqa: B006
        tools: Annotated[list[str], describe_field("Tools it may call, out of yours.")] = [],  # noqa: B006 - left out when not given
        run_every_n_ticks: Annotated[int, describe_field("It runs every so many ticks.", ge=1)] = 1,
        phase_offset: Annotated[int, describe_field("Shifts its runs by so many ticks.")] = 0,
        model_key: Annotated[str, describe_field("A key of config/models.json; empty: yours.")] = "",
        max_credits: Annotated[
            float, describe_field("Credits it gets, out of yours; 0: half of what you have left.", ge=0)
        ] = 0.0,
    ) -> ToolResult:
        """Return the effect that writes the resume, and the credits transferred to the new agent."""
        _require_free_name(context, name)
        _require_agent_limit(context)
        _require_creation_depth(context)
        _require_no_escalation(context, tools, read_outboxes)
        credits, transferred = _transfer_credits(context, max_credits)
        resume = {
            "name": name,
            "title": title,
            "model": {"key": _resolve_model_key(context, model_key)},
            "permissions": {
                "read_outboxes": read_outboxes,
                "tools": tools,
                "file_access": context.agent.as_json["permissions"]["file_access"],
            },
            "schedule": {"run_every_n_ticks": run_every_n_ticks, "phase_offset": phase_offset, "wake": "changed"},
            "instructions": instructions,
            "credits": credits,
            "created_by": context.agent.name,
        }
        if gates := context.agent.as_json.get("gates"):  # a created agent gets no permission that its creator lacks
            resume["gates"] = gates
        content = dump_pretty(resume)
        try:
            decode_resume(name, content)
        except ConfigError as error:
            raise ToolError(f"{self.name}: {error}") from error
        effect = FileEffect(paths.resume_file(name), content)
        credits_text = f" and has {transferred:g} of your credits" if transferred else ""
        text = f"created {name}; it takes its first turn when due, not in this tick{credits_text}"
        return ToolResult(True, text, (effect,), transferred)


def _get_staged_titles(context: ToolContext) -> dict[str, str]:
    resumes = {
        path.split("/")[1]: parse(content)
        for path, content in context.staged.items()
        if path.startswith("agents/") and path.endswith("/resume.json") and path.count("/") == 2
    }
    return {name: resume["title"] for name, resume in resumes.items()}


def _decode_new_agent(context: ToolContext, effect: FileEffect) -> Agent:
    """Return the agent defined by an effect. Raise unless the effect writes the resume of a new agent."""
    name = effect.path.split("/")[1] if effect.path.count("/") == 2 else ""
    if effect.root or not paths.AGENT_NAME.match(name) or effect.path != paths.resume_file(name):
        raise PermissionDenied(f"create_agent: {effect.path_key} is no resume")
    new_agent = parse_document(effect.content, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES).value
    try:
        existing = fs.read_bytes(context.base / effect.path, RESUME_LIMIT_BYTES)
        if existing != effect.content:  # the remains after a power cut are no resume
            parse_document(existing, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES)
            raise PermissionDenied(f'create_agent: there is an agent "{name}" already')
    except (FileNotFoundError, ConfigError):
        pass
    except OSError as error:
        raise CorruptState(str(error), where=effect.path) from error
    return new_agent


def _require_creatable(context: ToolContext, created: Agent) -> None:
    """Raise `PermissionDenied` for an agent with more rights than its creator may transfer now."""
    permissions, creator = created.permissions, context.agent
    _require_no_escalation(context, permissions.tools, permissions.read_outboxes)
    _resolve_model_key(context, created.model.key)
    limits: AgentCredits = resolve_credits(load_config(context.org), creator.name, creator.credits)
    new_credits, max_credits = created.credits.max_credits, limits.max_credits
    if (
        created.name == "human"
        or permissions.file_access != creator.permissions.file_access
        or created.context
        or permissions.read_memories
        or created.model.fallback
        or created.as_json.get("gates") != creator.as_json.get("gates")
    ):
        raise PermissionDenied(f'create_agent: "{created.name}" would get more than {creator.name} has')
    if max_credits is not None and (new_credits is None or new_credits > max_credits):
        raise PermissionDenied(f'create_agent: "{created.name}" would get more credits than {creator.name} has')


def _require_free_name(context: ToolContext, name: str) -> None:
    if reason := paths.new_agent_name_error(name):
        raise ToolError(f"create_agent: {reason}")
    folder = paths.agent_folder(name)
    if name == "human":
        raise PermissionDenied('create_agent: "human" is the person; refused by the engine')
    is_staged = any(path.startswith(f"{folder}/") for path in context.staged)
    if is_staged or path_exists(f"{context.base}/{folder}"):
        raise ToolError(f'create_agent: there is an agent "{name}" already')
    if approval := _find_former_approval(context, name):
        raise PermissionDenied(
            f'create_agent: {approval} lets calls of a former "{name}" pass unasked; take another name'
        )
    if name in load_config(context.org).allocations:  # it would hold, whatever the resume says
        raise PermissionDenied(f'create_agent: config/credits.json names "{name}" already; take another name')


def _find_former_approval(context: ToolContext, name: str) -> str:
    """Return the gate line with a former approval for this agent name, or an empty text."""
    gates: Any = context.settings.extensions.get("gates", ())  # a resume's are about its own agent
    indexes = (index for index, gate in enumerate(gates) if name in gate.approved)
    return next((f"{paths.ORG_FILE}#/gates/{index}/approved/{name}" for index in indexes), "")


def _require_no_escalation(context: ToolContext, tools: list[str], read_outboxes: list[str]) -> None:
    """Raise if the new agent would get more rights than its creator. `create_agent` is never transferred."""
    creator = context.agent
    own_tools = set(creator.permissions.tools) - {CreateAgentTool.name}
    toolset = get_toolset(context.settings, context.org).for_agent(creator.name)
    free = {name for name in tools if name in toolset and toolset[name].always_allowed}
    free |= {name for name in tools if "*" not in name and any(is_match(name, pattern) for pattern in own_tools)}
    free -= {CreateAgentTool.name}
    if excess := sorted(set(tools) - own_tools - free):
        raise PermissionDenied(
            f"create_agent: {', '.join(excess)} refused by your permissions.tools",
            hint=f"you can pass on: {', '.join(sorted(own_tools)) or 'none'}",
        )
    if unreadable := [name for name in read_outboxes if name != creator.name and not creator.may_read(name)]:
        raise PermissionDenied(f"create_agent: {', '.join(unreadable)} refused by your permissions.read_outboxes")


def _require_creation_depth(context: ToolContext) -> None:
    max_depth = context.settings.create_agent_max_depth
    if max_depth is None:
        return
    agents, depth, name = survey_agents(context.org).agents, 0, context.agent.name
    while (agent := agents.get(name)) and agent.created_by and depth < max_depth:
        depth, name = depth + 1, agent.created_by
    if depth >= max_depth:
        limit = f"config/org.json create_agent_max_depth {max_depth}"
        raise PermissionDenied(f"create_agent: refused by {limit}: you were created by an agent yourself")


def _require_agent_limit(context: ToolContext) -> None:
    settings = context.settings
    if context.successes.get(CreateAgentTool.name, 0) >= settings.create_agent_per_turn:
        limit = f"config/org.json create_agent_per_turn {settings.create_agent_per_turn}"
        raise PermissionDenied(f"create_agent: refused by {limit}", hint="create the others in later turns")
    agent_count = len({*list_agent_folders(context.base), *_get_staged_titles(context)})
    if agent_count >= settings.create_agent_max_agents:
        limit = f"config/org.json create_agent_max_agents {settings.create_agent_max_agents}"
        raise PermissionDenied(f"create_agent: refused by {limit}: there are {agent_count} agents")


def _resolve_model_key(context: ToolContext, requested_key: str) -> str:
    """Return the model key of the new agent: the creator's key, or one permitted by the organisation."""
    creator_key, permitted_keys = context.agent.model.key, context.settings.create_agent_models
    key = requested_key or creator_key
    if key not in (creator_key, *permitted_keys):
        raise PermissionDenied(
            f'create_agent: no model key "{key}" for new agents; refused by config/org.json '
            f"create_agent_models {permitted_keys}",
            hint=f"you can give: {', '.join(dict.fromkeys((creator_key, *permitted_keys)))}",
        )
    load_config(context.org).model(key)
    return key


def _transfer_credits(context: ToolContext, requested: float) -> tuple[dict[str, Any], float]:
    """Return the new agent's limits, and the credits deducted from its creator.

    Together, an agent and all its created agents can therefore spend at most the agent's own limit.
    """
    agent = context.agent
    limits: AgentCredits = resolve_credits(load_config(context.org), agent.name, agent.credits)
    if limits.max_credits is None:
        return {"max_credits": requested or None, "soft_cap": limits.soft_cap}, 0.0
    used_up = read_state(context.org, agent.name).consumed_credits if context.used_up is None else context.used_up
    remaining = max(limits.max_credits - used_up, 0.0)
    new_credits = requested or floor(remaining / 2 * 1e6) / 1e6  # down: halves never come to more
    if new_credits > remaining or not new_credits:
        raise PermissionDenied(
            f"create_agent: you have {remaining:g} credits left to pass on; it was to get {requested or new_credits:g}"
        )
    soft_cap = limits.soft_cap
    if soft_cap is not None:
        soft_cap = round(soft_cap * new_credits / limits.max_credits, 6)
    return {"max_credits": new_credits, "soft_cap": soft_cap}, new_credits
