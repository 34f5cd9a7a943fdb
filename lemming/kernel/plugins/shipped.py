"""The table of capabilities: where each lives, and which keys of people's files are its own.

A capability is a folder, and the folder can be deleted: nothing imports one by name but this table, and it is
loaded where an organisation uses it: `lemming.kernel.plugins.capabilities`. What it may take part in:
`lemming.kernel.turn.seams`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from lemming.kernel.base.patterns import is_among
from lemming.kernel.plugins.table import TableLine

HOSTED, JUDGES, REQUESTS, STRATEGIES = "hosted", "judges", "requests", "strategies"
MODEL_SERVERS = (
    "azure", "cerebras", "deepseek", "fireworks", "gemini", "groq", "huggingface", "llamacpp", "lmstudio",
    "mistral", "openrouter", "together", "vllm", "xai",
)  # fmt: skip


def _asks_persons(agent: Any, config: Any) -> bool:
    rules = (rule for it in (config.org, agent) for rule in it.further.get("gates", ()))
    return any(rule.then == "ask" for rule in rules)


def _attaches(agent: Any, config: Any) -> bool:
    line = config.models.get(agent.model.key)
    return (line is not None and line.images) or _names_attach(agent.permissions.tools)


def _may_attach(inputs: Any) -> Any:
    tools = inputs.agent.permissions.tools
    return tools and _names_attach(tools)


def _names_attach(tools: Collection[str]) -> bool:
    """Return whether tools have this one by its name, or by a pattern, which means those that are here."""
    return is_among("attach", tools) and ("attach" in tools or not lacking("attachments"))


@cache
def lacking(name: str) -> str:
    """Return the folder that a capability of ours lacks: its own, or of one that it needs; empty: none."""
    folder = LISTED[name].folder
    found = find_spec(folder)
    if found is None or found.origin is None:  # an empty folder has none
        return folder
    return next(filter(None, map(lacking, LISTED[name].needs)), "")


def names_servers(agent: Any) -> bool:
    """Return whether an agent's resume names tools that servers have."""
    return any(tool.startswith(PREFIXES) for tool in agent.permissions.tools)


def _has_schema(asker: Any, payload: Mapping[str, Any]) -> bool:
    asked = payload.get("asked") if "hands_on" in payload else payload
    return isinstance(asked, dict) and "schema" in asked


def _has_judges(asker: Any, payload: Mapping[str, Any]) -> bool:
    return "verify" in payload or has_judged_members(asker)


def has_judged_members(agent: Any) -> bool:
    """Return whether an agent has answers of one of its team judged."""
    return "team" in agent.further and any("verify" in it.further for it in agent.further["team"].members)


def _may_ask(inputs: Any) -> Any:
    """Return whether a turn is asked for something, was, or may ask: its team, or persons for a part."""
    is_shown = inputs.open_requests or inputs.said_requests
    is_begun = inputs.task or is_shown or inputs.state.requests or "team" in inputs.agent.further
    takes_part = {
        name for name in inputs.given if name == REQUESTS or name not in LISTED or LISTED[name].requests
    }
    return is_begun or takes_part


def _has_planners(config: Any, agents: Any) -> bool:
    keys = {key for key, line in config.models.items() if line.provider == "plan"}
    return any(it.model.key in keys for it in agents)


def _judged_by_gates(config: Any, agents: Any) -> bool:
    return any(gate.by for said in (config.org, *agents) for gate in said.further.get("gates", ()))


SHIPPED: Mapping[str, TableLine] = {
    it.name: it
    for it in (
        TableLine(
            "answers",
            "lemming.capabilities.answers.capability:Answers",
            resume={"output": "lemming.capabilities.answers.settings:OfResume"},
            is_asked_for=_has_schema,
            takes_part=lambda inputs: "output" in inputs.agent.further,
        ),
        TableLine(
            "approvals",
            "lemming.capabilities.approvals.capability:Approvals",
            gates=frozenset({"ask"}),
            turn=("max_approvals",),
            commands=("approvals", "approve", "deny"),
            requests=("call", "gate"),
            needs=("gates", REQUESTS),
            begins=True,
            used=_asks_persons,
        ),
        TableLine(
            "attachments",
            "lemming.capabilities.attachments.capability:Attachments",
            tools={"attach": "lemming.capabilities.attachments.tool:Attach"},
            model=("images",),
            tick="lemming.capabilities.attachments.capability:AttachmentsInTicks",
            needs=("toolbox",),
            used=_attaches,
            takes_part=_may_attach,
        ),
        TableLine(
            "batches",
            "lemming.capabilities.batches.capability:BatchesInUse",
            model=("batch_deadline_s", "batch_price_factor", "options.batches"),
            needs=(HOSTED,),
            records={
                "batch_announced": "lemming.capabilities.batches.records:BatchAnnounced",
                "batch_sent": "lemming.capabilities.batches.records:BatchSent",
                "batch_awaited": "lemming.capabilities.batches.records:BatchAwaited",
                "batch_ended": "lemming.capabilities.batches.records:BatchEnded",
            },
        ),
        TableLine(
            "channels",
            "lemming.capabilities.channels.capability:ChannelsInUse",
            providers={
                "folder": "lemming.capabilities.channels.folder:FolderChannel",
                "http": "lemming.capabilities.channels.http:HttpChannel",
                "mail": "lemming.capabilities.channels.email:MailChannel",
                "command": "lemming.capabilities.channels.command:CommandChannel",
            },
            commands=("channels", "serve"),
            needs=("programs",),
            carrier="lemming.capabilities.channels.between:Channels",
            reaches=lambda config, _: config.has_channels,
        ),
        TableLine(
            "cluster",
            "lemming.capabilities.cluster.capability:Cluster",
            executors={"dask": "lemming.capabilities.cluster.calls:DaskCalls"},
            reaches=lambda config, _: config.org.executor == "dask",
        ),
        TableLine(
            "embedded",
            "lemming.capabilities.embedded.capability:EmbeddedModels",
            backends={"local": "lemming.capabilities.embedded.local:LocalProvider"},
        ),
        TableLine(
            "gates",
            "lemming.capabilities.gates.capability:Gates",
            resume={"gates": "lemming.capabilities.gates.keys:OfResume"},
            org={"gates": "lemming.capabilities.gates.keys:OfOrg"},
            needs=("money",),
            commands=("gates",),
            reaches=_judged_by_gates,
        ),
        TableLine(
            JUDGES,
            "lemming.capabilities.judges.capability:Judges",
            resume={"verify": "lemming.capabilities.judges.settings:OfResume"},
            members={"verify": "lemming.capabilities.judges.settings:judged_by_in"},
            needs=(REQUESTS,),
            is_asked_for=_has_judges,
            reaches=lambda _, agents: any("verify" in it.further or has_judged_members(it) for it in agents),
        ),
        TableLine(
            "mcp",
            "lemming.capabilities.mcp.capability:Mcp",
            formats={
                "mcp": "lemming.capabilities.mcp.settings:McpSettings",
                "mcp_lock": "lemming.capabilities.mcp.lock:McpLock",
            },
            commands=("mcp",),
            source="lemming.capabilities.mcp.tools:McpTools",
            prefix="mcp.",
            brings=lambda _, survey: survey.names_servers,
            reaches=lambda _, agents: any(map(names_servers, agents)),
        ),
        TableLine(
            "calendars",
            "lemming.capabilities.calendars.capability:Calendars",
            providers={"clock": "lemming.capabilities.calendars.backend:ClockProvider"},
            asks_no_model=True,
            tools={"keep_job": "lemming.capabilities.calendars.keeping:KeepJob"},
            tick="lemming.capabilities.calendars.tick:CalendarInTicks",
            files=("config/calendar.json",),
            formats={"calendar": "lemming.capabilities.calendars.calendar:Calendar"},
            commands=("calendar",),
            needs=("cron", REQUESTS),
        ),
        TableLine(
            "cron",
            "lemming.capabilities.cron.capability:Cron",
            schedule={"cron": "lemming.capabilities.cron.expressions:why_no_cron"},
            tick="lemming.capabilities.cron.tick:CronInTicks",
            used=lambda agent, _: agent.schedule.cron is not None,
        ),
        TableLine(
            "money",
            "lemming.capabilities.money.capability:Money",
            model=("usd_per_million_input_tokens", "usd_per_million_output_tokens"),
            pricing="lemming.capabilities.money.prices:dollars_of",
            priced=("openai", "anthropic"),
        ),
        TableLine(
            "plans",
            "lemming.capabilities.plans.capability:Plans",
            providers={"plan": "lemming.capabilities.plans.backend:PlanProvider"},
            asks_no_model=True,
            tools={"plan_propose": "lemming.capabilities.plans.propose:PlanPropose"},
            writers=("plan_propose",),
            tick="lemming.capabilities.plans.tick:PlansInTicks",
            formats={"plan": "lemming.capabilities.plans.format:AgentPlan"},
            removes=("agents/*/memory/run-*.json",),
            commands=("plans",),
            needs=("answers", "judges", REQUESTS),
            takes_part=lambda inputs: inputs.model.provider == "plan",
            reaches=_has_planners,
        ),
        TableLine(
            "programs",
            "lemming.capabilities.programs.capability:Programs",
            backends={"cli": "lemming.capabilities.programs.cli:CliProvider"},
            reaches=lambda config, _: any(it.provider == "cli" for it in config.models.values()),
        ),
        TableLine(
            REQUESTS,
            "lemming.capabilities.requests.capability:Requests",
            resume={"team": "lemming.capabilities.requests.settings:OfResume"},
            turn=("take",),
            commands=("answer", "ask", "cancel", "chat", "requests", "waiting"),
            awaits=True,
            takes_part=_may_ask,
        ),
        TableLine(
            "skills",
            "lemming.capabilities.skills.capability:Skills",
            resume=dict.fromkeys(("guides", "skills"), "lemming.capabilities.skills.settings:OfResume"),
            tools={"skill_read": "lemming.capabilities.skills.skill_read:SkillRead"},
            granted={"skill_read": "skills"},
            tick="lemming.capabilities.skills.tick:SkillsInTicks",
            commands=("skills",),
        ),
        TableLine(
            STRATEGIES,
            "lemming.capabilities.strategies.capability:Strategies",
            turn=("strategy", "options"),
            used=lambda agent, _: agent.turn.strategy,
            strategies={
                "react": "lemming.capabilities.strategies.that_ship:REACT",
                "plan_execute": "lemming.capabilities.strategies.that_ship:PLAN_EXECUTE",
                "reflexion": "lemming.capabilities.strategies.that_ship:REFLEXION",
            },
            by_memory=("plan_execute",),
        ),
        TableLine(
            "trust",
            "lemming.capabilities.trust.capability:TrustOfTurns",
            resume={"trust": "lemming.capabilities.trust.settings:OfResume"},
            org={"trust": "lemming.capabilities.trust.settings:OfOrg"},
            commands=("vouch",),
        ),
        TableLine(
            "windows",
            "lemming.capabilities.windows.capability:Windows",
            resume={"memory": "lemming.capabilities.windows.settings:OfResume"},
            begins=True,
            # a turn that only makes calls sums up nothing; a strategy may look at what is not shown
            after=("approvals", "strategies"),
        ),
    )
}
"""Those that are a folder each, which may be absent."""


WITHIN: Mapping[str, TableLine] = {
    it.name: it
    for it in (
        TableLine(
            "toolbox",
            "lemming.capabilities.toolbox.capability:Toolbox",
            tools={
                "file_read": "lemming.capabilities.toolbox.files:FileRead",
                "file_write": "lemming.capabilities.toolbox.files:FileWrite",
                "file_list": "lemming.capabilities.toolbox.files:FileList",
                "file_edit": "lemming.capabilities.toolbox.edits:FileEdit",
                "file_append": "lemming.capabilities.toolbox.edits:FileAppend",
                "file_move": "lemming.capabilities.toolbox.edits:FileMove",
                "file_search": "lemming.capabilities.toolbox.file_search:FileSearch",
                "search": "lemming.capabilities.toolbox.search:Search",
                "shell": "lemming.capabilities.toolbox.shell:Shell",
                "memory_read": "lemming.capabilities.toolbox.memories:MemoryRead",
                "memory_write": "lemming.capabilities.toolbox.memories:MemoryWrite",
                "store_read": "lemming.capabilities.toolbox.store:StoreRead",
                "store_write": "lemming.capabilities.toolbox.store:StoreWrite",
                "read_document": "lemming.capabilities.toolbox.documents:ReadDocument",
                "http_get": "lemming.capabilities.toolbox.web:HttpGet",
                "http_post": "lemming.capabilities.toolbox.web:HttpPost",
                "remind_me": "lemming.capabilities.toolbox.reminders:RemindMe",
                "create_agent": "lemming.capabilities.toolbox.staff:CreateAgent",
                "list_agents": "lemming.capabilities.toolbox.staff:ListAgents",
                "tool_search": "lemming.capabilities.toolbox.tool_search:ToolSearch",
            },
            org=dict.fromkeys(("http", "reminders", "shell"), "lemming.capabilities.toolbox.settings:OfOrg"),
            source="lemming.capabilities.toolbox.functions.tool_files:ToolFiles",
            brings=lambda settings, _: settings.tool_files,
            reaches=lambda config, _: config.org.tool_files,
            of_functions="lemming.capabilities.toolbox.functions.tool:FunctionTool",
        ),
        TableLine(
            "scripted",
            "lemming.capabilities.scripted.capability:KnownAnswers",
            backends={
                "scripted": "lemming.capabilities.scripted.scripted:ScriptedProvider",
                "replay": "lemming.capabilities.scripted.replay:ReplayProvider",
            },
        ),
        TableLine(
            HOSTED,
            "lemming.capabilities.hosted.capability:HostedModels",
            servers="lemming.capabilities.hosted.refusals:Servers",
            backends={
                "openai": "lemming.capabilities.hosted.openai:OpenAIProvider",
                "anthropic": "lemming.capabilities.hosted.anthropic:AnthropicProvider",
                "ollama": "lemming.capabilities.hosted.ollama:OllamaProvider",
            }
            | {name: f"lemming.capabilities.hosted.served:{name}" for name in MODEL_SERVERS},
        ),
    )
}
"""Those that take part in turns as the others do, and of which the guide names the tools and models."""
LISTED = {**SHIPPED, **WITHIN}
SOURCES = {name: it for name, it in LISTED.items() if it.source}
"""Those from which an organisation may have further tools."""
PREFIXES = tuple(it.prefix for it in SOURCES.values() if it.prefix)
"""How the names of those tools begin of which only a server knows which there are."""
TAKING_PART = [(name, it.takes_part) for name, it in LISTED.items() if it.takes_part]
ASKED_FOR = {name: it.is_asked_for for name, it in LISTED.items() if it.is_asked_for}
AWAITING = [name for name, it in LISTED.items() if it.awaits]
ASKING = frozenset(name for name, it in LISTED.items() if REQUESTS in it.needs)
SCHEDULED = [(key, it.name, place) for it in SHIPPED.values() for key, place in it.schedule.items()]
USED = {name: it.used for name, it in LISTED.items() if it.used}
IN_TICKS = frozenset(name for name, it in LISTED.items() if it.tick)
PROVIDERS = {name: place for it in LISTED.values() for name, place in {**it.providers, **it.backends}.items()}
STRATEGIES_SHIPPED = {name: place for it in LISTED.values() for name, place in it.strategies.items()}
CHANNELS = frozenset(name for it in LISTED.values() if it.carrier for name in it.providers)
"""The providers that ship which are channels."""
OF_PROVIDER = {provider: it.name for it in LISTED.values() for provider in it.providers}
OF_BACKEND = {backend: it.name for it in LISTED.values() for backend in it.backends}
NO_MODELS = frozenset(provider for it in LISTED.values() if it.asks_no_model for provider in it.providers)
"""Providers whose answers cost nothing, and are no calls of a model."""
WRITERS = {tool: it.name for it in LISTED.values() for tool in it.writers}
BY_MEMORY = frozenset(name for it in LISTED.values() for name in it.by_memory)
GRANTED = {tool: key for it in LISTED.values() for tool, key in it.granted.items()}
FORMATS = {form: (it.name, place) for it in LISTED.values() for form, place in it.formats.items()}
RECORDED = {kind: (it.name, place) for it in LISTED.values() for kind, place in it.records.items()}
"""The kinds of records that capabilities write, each with whose it is, and its class."""
EXECUTORS = {executor: (it.name, place) for it in LISTED.values() for executor, place in it.executors.items()}
"""The values of `executor` by which others make the model calls."""
PRICED = frozenset(provider for it in LISTED.values() for provider in it.priced)
"""The providers whose models have prices without a line's saying so."""
REMOVED = [pattern for it in LISTED.values() for pattern in it.removes]
