"""The table of capabilities: import path, keys in user files, tools and providers of each.

A capability is a folder that can be deleted: only this table imports a capability by name, and a capability
is loaded only if an organisation uses it, by `lemming.kernel.plugins.capability_loader`.
`lemming.kernel.turn.turn_hooks` defines the hooks of a capability.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.plugins.built_in_capabilities import BUILT_IN, HOSTED
from lemming.kernel.plugins.capability_conditions import (
    has_gate_judges,
    has_judged_members,
    has_judges,
    has_planners,
    has_schema,
    should_ask_people,
)
from lemming.kernel.plugins.capability_spec import CapabilitySpec

APPROVALS, JUDGES, REQUESTS, STRATEGIES = "approvals", "judges", "requests", "strategies"


def _has_attachments(agent: Any, config: Any) -> bool:
    line = config.models.get(agent.model.key)
    return (line is not None and line.images) or _has_attach(agent.permissions.tools)


def _has_attach(tools: Collection[str]) -> bool:
    """Return True if the grants include `attach` by name, or by a pattern while the capability is installed."""
    return is_any_match("attach", tools) and ("attach" in tools or not find_missing_folder("attachments"))


@cache
def find_missing_folder(name: str) -> str:
    """Return the missing folder of a shipped capability or of a capability it needs, or an empty text."""
    folder = LISTED[name].package
    module_spec = find_spec(folder)
    if module_spec is None or module_spec.origin is None:  # an empty folder has none
        return folder
    return next(filter(None, map(find_missing_folder, LISTED[name].needs)), "")


def has_server_tools(agent: Any) -> bool:
    """Return True if an agent's resume grants tools of servers."""
    return any(tool.startswith(PREFIXES) for tool in agent.permissions.tools)


def _can_have_requests(inputs: Any) -> Any:
    """Return True if a turn serves, shows or can create requests: to a team or to persons."""
    is_shown = inputs.open_requests or inputs.said_requests
    has_requests = inputs.task or is_shown or inputs.state.requests or "team" in inputs.agent.extensions
    participants = {name for name in inputs.given if name in (REQUESTS, APPROVALS) or name not in LISTED}
    return has_requests or participants


SHIPPED: Mapping[str, CapabilitySpec] = {
    spec.name: spec
    for spec in (
        CapabilitySpec(
            "answers",
            "lemming.capabilities.output_schemas.answers_capability:AnswersCapability",
            resume={"output": "lemming.capabilities.output_schemas.answers_settings:AnswersResumeSettings"},
            is_requested=has_schema,
            participates=lambda inputs: "output" in inputs.agent.extensions,
        ),
        CapabilitySpec(
            APPROVALS,
            "lemming.capabilities.approvals.approvals_capability:ApprovalsCapability",
            gates=frozenset({"ask"}),
            turn=("max_approvals",),
            commands=dict.fromkeys(("approve", "deny"), ""),
            needs=("gates", REQUESTS),
            can_begin=True,
            is_used=should_ask_people,
        ),
        CapabilitySpec(
            "attachments",
            "lemming.capabilities.attachments.attachments_capability:AttachmentsCapability",
            tools={"attach": "lemming.capabilities.attachments.attach_tool:AttachTool"},
            model=("images",),
            tick="lemming.capabilities.attachments.attachments_capability:AttachmentsTickInterceptor",
            needs=("toolbox",),
            is_used=_has_attachments,
            participates=lambda inputs: inputs.agent.permissions.tools and _has_attach(inputs.agent.permissions.tools),
        ),
        CapabilitySpec(
            "batches",
            "lemming.capabilities.batches.batches_capability:BatchesCapability",
            model=("batch_deadline_s", "batch_price_factor", "options.batches"),
            needs=(HOSTED,),
            records={
                "batch_announced": "lemming.capabilities.batches.batch_records:BatchAnnounced",
                "batch_sent": "lemming.capabilities.batches.batch_records:BatchSent",
                "batch_awaited": "lemming.capabilities.batches.batch_records:BatchAwaited",
                "batch_ended": "lemming.capabilities.batches.batch_records:BatchEnded",
            },
        ),
        CapabilitySpec(
            "channels",
            "lemming.capabilities.channels.channels_capability:ChannelsCapability",
            providers={
                "folder": "lemming.capabilities.channels.folder_channel:FolderChannel",
                "http": "lemming.capabilities.channels.http_channel:HttpChannel",
                "mail": "lemming.capabilities.channels.email_channel:MailChannel",
                "command": "lemming.capabilities.channels.command_channel:CommandChannel",
            },
            commands={
                "channels": "lemming.capabilities.channels.channels_command:channels",
                "serve": "lemming.capabilities.channels.serve_command:serve",
            },
            facts={
                "channels.is_served": "lemming.capabilities.channels.channel_service:is_served",
                "channels.serve": "lemming.capabilities.channels.serve_command:open_channel_server",
                "channels.statuses": "lemming.capabilities.channels.channel_status:get_channel_statuses",
            },
            needs=("programs",),
            gateway="lemming.capabilities.channels.channel_gateway:ChannelGateway",
            has_side_effects=lambda config, _: config.has_channels,
        ),
        CapabilitySpec(
            "cluster",
            "lemming.capabilities.cluster.cluster_capability:ClusterCapability",
            executors={"dask": "lemming.capabilities.cluster.cluster_calls:DaskCalls"},
            has_side_effects=lambda config, _: config.org.executor == "dask",
        ),
        CapabilitySpec(
            "embedded",
            "lemming.capabilities.embedded_models.embedded_capability:EmbeddedModelsCapability",
            backends={"local": "lemming.capabilities.embedded_models.llama_provider:LocalProvider"},
            facts={
                "embedded.copy_known_weights": "lemming.capabilities.embedded_models.model_weights:copy_known_weights",
                "embedded.pull_weights": "lemming.capabilities.embedded_models.model_weights:pull_weights",
            },
        ),
        CapabilitySpec(
            "gates",
            "lemming.capabilities.gates.gates_capability:GatesCapability",
            resume={"gates": "lemming.capabilities.gates.gate_settings:GatesResumeSettings"},
            org={"gates": "lemming.capabilities.gates.gate_settings:GatesOrgSettings"},
            needs=("money",),
            commands={"gates": "lemming.capabilities.gates.gates_command:app"},
            facts={
                "gates.spending_limits": "lemming.capabilities.gates.gate_settings:list_spending_limits",
            }
            | {
                f"gates.{name}": f"lemming.capabilities.gates.standing_approvals:{name}"
                for name in ("add_standing_approval", "preview_standing_approval", "require_gate_exists")
            },
            has_side_effects=has_gate_judges,
        ),
        CapabilitySpec(
            JUDGES,
            "lemming.capabilities.judges.judges_capability:JudgesCapability",
            resume={"verify": "lemming.capabilities.judges.judges_settings:JudgesResumeSettings"},
            members={"verify": "lemming.capabilities.judges.judges_settings:parse_judge_settings"},
            facts={
                "judges.parse_target": "lemming.capabilities.judges.judges_settings:parse_judge_target",
                "judges.parse_verdict": "lemming.capabilities.judges.judge_prompts:parse_verdict",
                "judges.rubric_prompt": "lemming.capabilities.judges.judge_prompts:build_rubric_prompt",
            },
            needs=(REQUESTS,),
            is_requested=has_judges,
            has_side_effects=lambda _, agents: any(
                "verify" in spec.extensions or has_judged_members(spec) for spec in agents
            ),
        ),
        CapabilitySpec(
            "mcp",
            "lemming.capabilities.mcp.mcp_capability:McpCapability",
            formats={
                "mcp": "lemming.capabilities.mcp.mcp_settings:McpSettings",
                "mcp_lock": "lemming.capabilities.mcp.mcp_lock_file:McpLock",
            },
            commands={"mcp": "lemming.capabilities.mcp.mcp_command:app"},
            source="lemming.capabilities.mcp.mcp_tools:McpToolSource",
            prefix="mcp.",
            has_own_tools=lambda _, survey: survey.has_server_tools,
            has_side_effects=lambda _, agents: any(map(has_server_tools, agents)),
        ),
        CapabilitySpec(
            "calendars",
            "lemming.capabilities.calendars.calendars_capability:CalendarsCapability",
            providers={"clock": "lemming.capabilities.calendars.clock_provider:ClockProvider"},
            is_model_free=True,
            tools={"keep_job": "lemming.capabilities.calendars.keep_job_tool:KeepJobTool"},
            tick="lemming.capabilities.calendars.calendars_tick:CalendarTickInterceptor",
            files=("config/calendar.json",),
            formats={"calendar": "lemming.capabilities.calendars.calendar_file:Calendar"},
            commands={"calendar": "lemming.capabilities.calendars.calendar_command:calendar"},
            facts={"calendars.add_job": "lemming.capabilities.calendars.calendar_command:add_job"},
            needs=(REQUESTS,),
        ),
        CapabilitySpec(
            "cron",
            "lemming.capabilities.cron.cron_capability:CronCapability",
            schedule={"cron": "lemming.libraries.cron_expressions:find_cron_error"},
            tick="lemming.capabilities.cron.cron_tick:CronTickInterceptor",
            is_used=lambda agent, _: agent.schedule.cron is not None,
        ),
        CapabilitySpec(
            "money",
            "lemming.capabilities.pricing.money_capability:MoneyCapability",
            model=("usd_per_million_input_tokens", "usd_per_million_output_tokens"),
            pricing="lemming.capabilities.pricing.prices:compute_cost_usd",
            priced_providers=("openai", "anthropic"),
            facts={
                "money.max_call_cost": "lemming.capabilities.pricing.prices:max_call_cost",
                "money.price": "lemming.capabilities.pricing.prices:get_price",
                "money.shutdown_date": "lemming.capabilities.pricing.prices:get_shutdown_date",
            },
        ),
        CapabilitySpec(
            "plans",
            "lemming.capabilities.plans.plans_capability:PlansCapability",
            providers={"plan": "lemming.capabilities.plans.plan_provider:PlanProvider"},
            is_model_free=True,
            tools={"plan_propose": "lemming.capabilities.plans.plan_propose_tool:PlanProposeTool"},
            writers=("plan_propose",),
            tick="lemming.capabilities.plans.plans_tick:PlansTickInterceptor",
            formats={"plan": "lemming.capabilities.plans.plan_format:AgentPlan"},
            removable_files=("agents/*/memory/run-*.json",),
            commands={"plans": "lemming.capabilities.plans.plans_command:app"},
            needs=("answers", "judges", REQUESTS),
            participates=lambda inputs: inputs.model.provider == "plan",
            has_side_effects=has_planners,
        ),
        CapabilitySpec(
            "programs",
            "lemming.capabilities.program_models.programs_capability:ProgramsCapability",
            backends={"cli": "lemming.capabilities.program_models.program_provider:CliProvider"},
            has_side_effects=lambda config, _: any(spec.provider == "cli" for spec in config.models.values()),
        ),
        CapabilitySpec(
            REQUESTS,
            "lemming.capabilities.requests.requests_capability:RequestsCapability",
            resume={"team": "lemming.capabilities.requests.requests_settings:RequestsResumeSettings"},
            turn=("take",),
            commands=dict.fromkeys(("answer", "ask", "cancel", "chat"), ""),
            has_reply_holds=True,
            participates=_can_have_requests,
        ),
        CapabilitySpec(
            "skills",
            "lemming.capabilities.skills.skills_capability:SkillsCapability",
            resume=dict.fromkeys(
                ("guides", "skills"), "lemming.capabilities.skills.skills_settings:SkillsResumeSettings"
            ),
            tools={"skill_read": "lemming.capabilities.skills.skill_read_tool:SkillReadTool"},
            granted_by={"skill_read": "skills"},
            tick="lemming.capabilities.skills.skills_tick:SkillsTickInterceptor",
            commands={"skills": "lemming.capabilities.skills.skills_command:app"},
            facts={
                "skills.of_agent": "lemming.capabilities.skills.skill_lookup:list_agent_skills",
            },
        ),
        CapabilitySpec(
            STRATEGIES,
            "lemming.capabilities.strategies.strategies_capability:StrategiesCapability",
            turn=("strategy", "options"),
            is_used=lambda agent, _: agent.turn.strategy,
            strategies={
                "react": "lemming.capabilities.strategies.builtin_strategies:REACT",
                "plan_execute": "lemming.capabilities.strategies.builtin_strategies:PLAN_EXECUTE",
                "reflexion": "lemming.capabilities.strategies.builtin_strategies:REFLEXION",
            },
            memory_strategies=("plan_execute",),
        ),
        CapabilitySpec(
            "trust",
            "lemming.capabilities.trust.trust_capability:TrustCapability",
            resume={"trust": "lemming.capabilities.trust.trust_settings:TrustResumeSettings"},
            org={"trust": "lemming.capabilities.trust.trust_settings:TrustOrgSettings"},
            commands=dict.fromkeys(("endorse",), ""),
            facts={
                "trust.entry_labels": "lemming.capabilities.trust.author_labels:make_entry_labels",
                "trust.import_label": "lemming.capabilities.trust.sidecar_labels:make_import_label",
                "trust.trace": "lemming.capabilities.trust.trust_trace:trace_trust",
                "trust.untrusted_files": "lemming.capabilities.trust.sidecar_labels:iter_untrusted_files",
            },
        ),
        CapabilitySpec(
            "windows",
            "lemming.capabilities.context_window.windows_capability:WindowsCapability",
            resume={"memory": "lemming.capabilities.context_window.windows_settings:WindowsResumeSettings"},
            can_begin=True,
            # a turn that only makes calls needs no summary; a strategy may read hidden entries
            after=("approvals", "strategies"),
        ),
    )
}
"""The capabilities with a folder each, which may be absent."""
LISTED = {**SHIPPED, **BUILT_IN}
SOURCES = {name: spec for name, spec in LISTED.items() if spec.source}
"""Capabilities that add tools to an organisation."""
PREFIXES = tuple(spec.prefix for spec in SOURCES.values() if spec.prefix)
"""Prefixes of tools that only a server can list."""
PARTICIPATION_CHECKS = [(name, spec.participates) for name, spec in LISTED.items() if spec.participates]
REQUEST_CHECKS = {name: spec.is_requested for name, spec in LISTED.items() if spec.is_requested}
WITH_REPLY_HOLDS = [name for name, spec in LISTED.items() if spec.has_reply_holds]
USING_REQUESTS = frozenset(name for name, spec in LISTED.items() if REQUESTS in spec.needs)
SCHEDULED = [(key, spec.name, import_path) for spec in SHIPPED.values() for key, import_path in spec.schedule.items()]
USED = {name: spec.is_used for name, spec in LISTED.items() if spec.is_used}
WITH_TICK_HOOKS = frozenset(name for name, spec in LISTED.items() if spec.tick)
PROVIDERS = {
    name: import_path for spec in LISTED.values() for name, import_path in {**spec.providers, **spec.backends}.items()
}
STRATEGIES_SHIPPED = {name: import_path for spec in LISTED.values() for name, import_path in spec.strategies.items()}
CHANNELS = frozenset(name for spec in LISTED.values() if spec.gateway for name in spec.providers)
"""The providers that ship which are channels."""
PROVIDER_OWNERS = {provider: spec.name for spec in LISTED.values() for provider in spec.providers}
BACKEND_OWNERS = {backend: spec.name for spec in LISTED.values() for backend in spec.backends}
NO_MODELS = frozenset(name for spec in LISTED.values() if spec.is_model_free for name in spec.providers)
"""Providers without costs; their answers are not model calls."""
COMMANDS = {
    command: (spec.name, import_path) for spec in LISTED.values() for command, import_path in spec.commands.items()
}
"""Commands of capabilities, each with the capability and the code."""
FACTS = {fact: (spec.name, import_path) for spec in LISTED.values() for fact, import_path in spec.facts.items()}
"""Facts of capabilities for screens, each with the capability and the function."""
WRITERS = {tool: spec.name for spec in LISTED.values() for tool in spec.writers}
MEMORY_STRATEGIES = frozenset(name for spec in LISTED.values() for name in spec.memory_strategies)
GRANTED = {tool: key for spec in LISTED.values() for tool, key in spec.granted_by.items()}
FORMATS = {form: (spec.name, import_path) for spec in LISTED.values() for form, import_path in spec.formats.items()}
RECORDED = {kind: (spec.name, import_path) for spec in LISTED.values() for kind, import_path in spec.records.items()}
"""Record types of capabilities, each with the capability and the class."""
EXECUTORS = {
    executor: (spec.name, import_path) for spec in LISTED.values() for executor, import_path in spec.executors.items()
}
"""The values of `executor` by which others make the model calls."""
PRICED = frozenset(provider for spec in LISTED.values() for provider in spec.priced_providers)
"""Providers with prices for models whose entry has none."""
REMOVABLE_PATTERNS = [pattern for spec in LISTED.values() for pattern in spec.removable_files]
