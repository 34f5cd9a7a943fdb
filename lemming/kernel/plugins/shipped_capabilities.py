"""The capabilities that ship: import path, keys in user files, and the provided items.

A capability is a removable folder: only this list names a capability by its path.
`lemming.kernel.plugins.capability_spec` explains the entries, `lemming.kernel.plugins.capability_table` indexes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.plugins.capability_spec import CapabilitySpec

JUDGES, REQUESTS, STRATEGIES = "judges", "requests", "strategies"
HOSTED = "hosted"
MODEL_SERVERS = (
    "azure", "cerebras", "deepseek", "fireworks", "gemini", "groq", "huggingface", "llamacpp", "lmstudio",
    "mistral", "openrouter", "together", "vllm", "xai",
)  # fmt: skip


def _in(module: str, **names: str) -> dict[str, str]:
    """Return the import paths of items in a module of a capability."""
    return {key: f".{module}:{name}" for key, name in names.items()}


def _has_attachments(agent: Any, entry: Any) -> Any:
    tools = agent.permissions.tools  # most agents have none, and this is asked for each turn
    return (entry and entry.images) or (tools and _has_attach(tools))


def _has_attach(tools: Collection[str]) -> bool:
    """Return True if the grants include `attach` by name, or by a pattern while the capability is installed."""
    return is_any_match("attach", tools) and ("attach" in tools or not find_missing_folder("attachments"))


SHIPPED: Mapping[str, CapabilitySpec] = {
    spec.name: spec
    for spec in (
        CapabilitySpec(
            "answers",
            "lemming.capabilities.output_schemas.output_schemas_capability:OutputSchemasCapability",
            uses=lambda agent, _: "output" in agent.extensions,  # its turns need no snapshot
            keys={"resume.output": ".output_settings:OutputResumeSettings", "request.schema": ""},
            provides={
                "checks": _in("output_schemas_capability", resume="find_output_typos", agent="find_output_problems")
            },
        ),
        CapabilitySpec(
            "approvals",
            "lemming.capabilities.approvals.approvals_capability:ApprovalsCapability",
            needs=("gates", REQUESTS),
            keys={"turn.max_approvals": "", "gate.then.ask": ""},
            provides={
                "rules": {"decisions": ""},
                "commands": {"approve": "", "deny": ""},
                "checks": _in(
                    "approvals_capability", organisation="find_approver_problems", turn="find_unapproved_calls"
                ),
            },
        ),
        CapabilitySpec(
            "attachments",
            "lemming.capabilities.attachments.attachments_capability:AttachmentsCapability",
            needs=("toolbox",),
            uses=_has_attachments,
            keys={"model.images": ""},
            provides={"tools": {"attach": ".attachments_capability:AttachTool"}, "in_ticks": {"attachments": ""}},
        ),
        CapabilitySpec(
            "batches",
            "lemming.capabilities.batches.batch_queue:BatchesCapability",
            needs=(HOSTED,),
            keys={"model.batch_deadline_s": "", "model.batch_price_factor": "", "model.options.batches": ""},
            provides={
                "call_batchers": {"batches": ".batch_queue:BatchQueue"},
                "records": {
                    "batch_announced": ".batch_records:BatchAnnounced",
                    "batch_sent": ".batch_records:BatchSent",
                    "batch_awaited": ".batch_records:BatchAwaited",
                    "batch_ended": ".batch_records:BatchEnded",
                },
            },
        ),
        CapabilitySpec(
            "channels",
            "lemming.capabilities.channels.channels_capability:ChannelsCapability",
            needs=("programs",),
            provides={
                "channel_providers": {
                    "folder": ".folder_channel:FolderChannel",
                    "http": ".http_channel:HttpChannel",
                    "mail": ".email_channel:MailChannel",
                    "command": ".command_channel:CommandChannel",
                },
                "gateways": {"channels": ".channel_gateway:ChannelGateway"},
                "checks": {"organisation": ".channel_status:find_channel_problems"},
                "permissions": {"channels": ".channels_capability:iter_permissions"},
                "commands": {"serve": ".channel_service:serve"},
                "screens": {"channels": ".channel_status:CHANNELS"},
                "facts": {
                    "channels.is_served": ".channel_service:is_served",
                    "channels.serve": ".channel_service:open_channel_server",
                    "channels.statuses": ".channel_status:get_channel_statuses",
                },
            },
        ),
        CapabilitySpec(
            "cluster",
            "lemming.capabilities.cluster.cluster_calls:ClusterCapability",
            provides={
                "permissions": {"cluster": ".cluster_calls:iter_permissions"},
                "executors": {"dask": ".cluster_calls:DaskCalls"},
            },
        ),
        CapabilitySpec(
            "embedded",
            "lemming.capabilities.embedded_models.llama_provider:EmbeddedModelsCapability",
            provides={
                "model_providers": {"local": ".llama_provider:LocalProvider"},
                "facts": {
                    "embedded.copy_known_weights": ".model_weights:copy_known_weights",
                    "embedded.pull_weights": ".model_weights:pull_weights",
                },
            },
        ),
        CapabilitySpec(
            "gates",
            "lemming.capabilities.gates.gates_capability:GatesCapability",
            needs=("money",),
            keys={"resume.gates": ".gate_settings:GatesResumeSettings", "org.gates": ".gate_settings:GatesOrgSettings"},
            provides={
                "checks": _in("gates_validation", agent="find_limit_problems", organisation="find_gate_problems")
                | _in("dead_gates", settings="find_dead_gates", resume="find_dead_gates")
                | _in("gates_capability", turn="find_added_gates"),
                "permissions": {"gates": ".gates_capability:iter_permissions"},
                "commands": {"gates": ".gates_command:app"},
                "screens": {"gates": ".gates_screen:GATES"},
                "facts": {
                    "gates.spending_limits": ".gate_settings:list_spending_limits",
                    "gates.add_standing_approval": ".standing_approvals:add_standing_approval",
                    "gates.preview_standing_approval": ".standing_approvals:preview_standing_approval",
                    "gates.require_gate_exists": ".standing_approvals:require_gate_exists",
                },
            },
        ),
        CapabilitySpec(
            "goals",
            "lemming.capabilities.goals.goals_capability:GoalsCapability",
            needs=(JUDGES, REQUESTS),
            keys={"request.until": ""},
            provides={
                "formats": {"until": ".goal_settings:Goal"},
                "facts": {
                    "goals.require_valid": ".goal_settings:require_valid_goal",
                    "goals.permissions": ".goals_capability:list_check_permissions",
                },
            },
        ),
        CapabilitySpec(
            JUDGES,
            "lemming.capabilities.judges.judges_capability:JudgesCapability",
            needs=(REQUESTS,),
            after=("goals",),  # a draft is judged by the agent's own judge before the asker's goal counts
            keys={
                "resume.verify": ".judges_settings:JudgesResumeSettings",
                "member.verify": ".judges_settings:parse_judge_settings",
                "request.verify": "",
            },
            provides={
                "checks": _in("judges_capability", resume="find_missing_judges", agent="find_judge_problems"),
                "permissions": {JUDGES: ".judges_capability:iter_permissions"},
                "facts": {
                    "judges.parse_target": ".judges_settings:parse_judge_target",
                    "judges.parse_verdict": ".judge_verdicts:parse_verdict",
                    "judges.rubric_prompt": ".judge_verdicts:build_rubric_prompt",
                },
            },
        ),
        CapabilitySpec(
            "mcp",
            "lemming.capabilities.mcp.mcp_capability:McpCapability",
            provides={
                "tool_sources": {"mcp.": ".mcp_tools:McpToolSource"},
                "checks": {"organisation": ".mcp_tools:find_server_problems"},
                "permissions": {"mcp": ".mcp_capability:iter_permissions"},
                "formats": {"mcp": ".mcp_settings:McpSettings", "mcp_lock": ".mcp_lock_file:McpLock"},
                "commands": {"mcp": ".mcp_command:app"},
                "screens": {"mcp": ".servers_screen:SERVERS"},
            },
        ),
        CapabilitySpec(
            "calendars",
            "lemming.capabilities.calendars.calendars_capability:CalendarsCapability",
            needs=(REQUESTS,),
            provides={
                "in_ticks": {"calendars": ""},
                "computed_providers": {"clock": ".calendars_capability:ClockProvider"},
                "tools": {"keep_job": ".keep_job_tool:KeepJobTool"},
                "formats": {"calendar": ".calendar_file:Calendar"},
                "screens": {"calendar": ".calendar_command:CALENDAR"},
                "checks": {"organisation": ".calendar_file:find_calendar_problems"},
                "facts": {"calendars.add_job": ".calendar_command:add_job"},
            },
            files={"config/calendar.json": "settings"},
        ),
        CapabilitySpec(
            "cron",
            "lemming.capabilities.cron.cron_capability:CronCapability",
            keys={"schedule.cron": "lemming.libraries.cron_expressions:find_cron_error"},
            provides={"in_ticks": {"cron": ""}},
        ),
        CapabilitySpec(
            "money",
            "lemming.capabilities.pricing.prices:MoneyCapability",
            keys={"model.usd_per_million_input_tokens": "", "model.usd_per_million_output_tokens": ""},
            provides={
                "pricing": dict.fromkeys(
                    ("*", "openai", "anthropic", "claude-code", "codex", "pi", "opencode"), ".prices:compute_cost_usd"
                ),
                "facts": {
                    "money.max_call_cost": ".prices:max_call_cost",
                    "money.price": ".prices:get_price",
                    "money.shutdown_date": ".prices:get_shutdown_date",
                },
            },
        ),
        CapabilitySpec(
            "plans",
            "lemming.capabilities.plans.plans_capability:PlansCapability",
            needs=("answers", JUDGES, REQUESTS),
            provides={
                "in_ticks": {"plans": ""},
                "computed_providers": {"plan": ".plan_provider:PlanProvider"},
                "checks": {"agent": ".plan_permissions:find_plan_problems"},
                "permissions": {"plans": ".plans_capability:iter_permissions"},
                "formats": {"plan": ".plan_format:AgentPlan"},
                "commands": {"plans": ".plans_command:app"},
                "screens": {"plans": ".plan_runs:PLANS"},
            },
            files={"agents/*/memory/run-*.json": "temporary"},
        ),
        CapabilitySpec(
            "programs",
            "lemming.capabilities.program_models.program_provider:ProgramsCapability",
            provides={
                "model_providers": {"cli": ".program_provider:CliProvider"},
                "permissions": {"programs": ".program_provider:iter_permissions"},
            },
        ),
        CapabilitySpec(
            REQUESTS,
            "lemming.capabilities.requests.requests_capability:RequestsCapability",
            after=("goals", "judges"),  # which may forbid that a request is handed on
            keys={"resume.team": ".requests_settings:RequestsResumeSettings", "turn.take": ""},
            provides={
                "rules": {"requests": ".request_agenda:build_agenda"},
                "reply_holds": {REQUESTS: ".request_resolver:is_awaited_entry"},
                "checks": _in("requests_capability", resume="find_team_typos", agent="find_team_problems")
                | _in("requests_capability", organisation="find_request_problems"),
                "commands": {"answer": "", "ask": "", "cancel": "", "chat": ""},
            },
        ),
        CapabilitySpec(
            "skills",
            "lemming.capabilities.skills.skills_capability:SkillsCapability",
            keys=dict.fromkeys(("resume.guides", "resume.skills"), ".skills_settings:SkillsResumeSettings"),
            provides={
                "in_ticks": {"skills": ""},
                "tools": {"skill_read": ".skill_lookup:SkillReadTool"},
                "commands": {"skills": ".skills_command:app"},
                "screens": {"skills": ".skills_command:SKILLS"},
                "checks": _in("skills_settings", resume="find_invalid_patterns")
                | _in("skills_capability", agent="find_skill_problems"),
            },
        ),
        CapabilitySpec(
            STRATEGIES,
            "lemming.capabilities.strategies.strategies_capability:StrategiesCapability",
            uses=lambda agent, _: agent.turn.strategy,
            keys={"turn.strategy": "", "turn.options": ""},
            provides={
                "strategies": {
                    "react": ".plan_execute:REACT",
                    "plan_execute": ".plan_execute:PLAN_EXECUTE",
                    "reflexion": ".plan_execute:REFLEXION",
                },
                "checks": {"agent": ".strategies_capability:find_strategy_problems"},
            },
        ),
        CapabilitySpec(
            "trust",
            "lemming.capabilities.trust.trust_capability:TrustCapability",
            keys={
                "resume.trust": ".trust_settings:TrustResumeSettings",
                "org.trust": ".trust_settings:TrustOrgSettings",
            },
            provides={
                "folder_moves": {"trust": ".sidecar_labels:move_labels"},
                "checks": _in("trust_capability", settings="find_dead_rules", resume="find_clean_turn_problems"),
                "commands": {"endorse": ".endorse_command:endorse"},
                "facts": {
                    "trust.entry_labels": ".author_labels:make_entry_labels",
                    "trust.import_label": ".sidecar_labels:make_import_label",
                    "trust.trace": ".trust_trace:trace_trust",
                    "trust.untrusted_files": ".sidecar_labels:iter_untrusted_files",
                },
            },
        ),
        CapabilitySpec(
            "windows",
            "lemming.capabilities.context_window.context_window_capability:ContextWindowCapability",
            # a turn that only makes calls needs no summary; a strategy may read hidden entries
            after=("approvals", STRATEGIES),
            keys={"resume.memory": ".context_window_capability:ContextWindowResumeSettings"},
            provides={"checks": {"agent": ".context_window_capability:find_summary_problem"}},
        ),
        CapabilitySpec(
            "workers",
            "lemming.capabilities.workers.workers_capability:WorkersCapability",
            keys={"resume.workspace": ".workspace_settings:WorkspaceResumeSettings"},
            provides={
                "harness_providers": {
                    name: f".worker_provider:{name}"
                    for name in ("claude-code", "codex", "pi", "opencode", "gemini-cli", "acp", "harness", "recorded")
                },
                "tools": {
                    "merge": ".merge_tool:MergeTool",
                    "check_patch": ".worker_tools:CheckPatchTool",
                    "permit": ".worker_tools:PermitTool",
                },
                "checks": {"agent": ".workers_capability:find_workspace_problems"},
                "permissions": {"workers": ".workers_capability:iter_permissions"},
                "commands": {"workers": ".workers_command:app"},
                "screens": {"workers": ".running_workers:WORKERS"},
                "facts": {
                    "workers.find_line": ".recorded_merges:find_line",
                    "workers.review_merge": ".merge_review:REVIEW",
                    "workers.merge_problems": ".recorded_merges:find_merge_problems",
                    "workers.make_goal_check": ".worker_tools:make_goal_check",
                    "workers.check_worker_model": ".workers_capability:check_worker_model",
                    "workers.describe_machine": ".workers_capability:describe_machine",
                    "workers.describe_start": ".workers_capability:describe_start",
                    "workers.make_repository": ".workers_capability:make_repository",
                    "workers.running": ".running_workers:list_workers",
                    "workers.stop": ".running_workers:stop_worker",
                    "workers.watched_files": ".running_workers:list_watched_files",
                },
            },
        ),
    )
}
"""The capabilities with a folder each, which may be absent."""
BUILT_IN: Mapping[str, CapabilitySpec] = {
    spec.name: spec
    for spec in (
        CapabilitySpec(
            "toolbox",
            "lemming.capabilities.toolbox.toolbox_capability:ToolboxCapability",
            keys=dict.fromkeys(("org.http", "org.reminders", "org.shell"), ".toolbox_settings:ToolboxOrgSettings"),
            provides={
                "tools": {
                    "file_read": ".file_tools:FileReadTool",
                    "file_write": ".file_tools:FileWriteTool",
                    "file_list": ".file_tools:FileListTool",
                    "file_edit": ".file_tools:FileEditTool",
                    "file_append": ".file_tools:FileAppendTool",
                    "file_move": ".file_tools:FileMoveTool",
                    "file_search": ".file_search:FileSearchTool",
                    "search": ".file_search:SearchTool",
                    "shell": ".shell_tool:ShellTool",
                    "memory_read": ".memory_tools:MemoryReadTool",
                    "memory_write": ".memory_tools:MemoryWriteTool",
                    "store_read": ".memory_tools:StoreReadTool",
                    "store_write": ".memory_tools:StoreWriteTool",
                    "read_document": ".file_tools:ReadDocumentTool",
                    "http_get": ".http_tools:HttpGetTool",
                    "http_post": ".http_tools:HttpPostTool",
                    "remind_me": ".reminders:RemindMeTool",
                    "create_agent": ".agent_tools:CreateAgentTool",
                    "list_agents": ".agent_tools:ListAgentsTool",
                    "tool_search": ".tool_search:ToolSearch",
                },
                "tool_sources": {"tool_files": ".functions.tool_files:FunctionToolSource"},
                "function_tools": {"function": ".functions.function_tool:FunctionTool"},
                "checks": {"organisation": ".toolbox_capability:find_empty_tool_patterns"},
                "permissions": {"toolbox": ".toolbox_capability:iter_permissions"},
            },
        ),
        CapabilitySpec(
            "scripted",
            "lemming.capabilities.scripted_models.scripted_provider:ScriptedAnswersCapability",
            provides={
                "model_providers": {
                    "scripted": ".scripted_provider:ScriptedProvider",
                    "replay": ".journal_provider:ReplayProvider",
                }
            },
        ),
        CapabilitySpec(
            HOSTED,
            "lemming.capabilities.hosted_models.rejected_fields:HostedModelsCapability",
            provides={
                "model_providers": {
                    "openai": ".openai_provider:OpenAIProvider",
                    "anthropic": ".anthropic_provider:AnthropicProvider",
                    "ollama": ".ollama_provider:OllamaProvider",
                }
                | {name: f".openai_provider:{name}" for name in MODEL_SERVERS},
                "server_profiles": {"hosted": ".rejected_fields:ServerProfiles"},
            },
        ),
    )
}
"""Capabilities of the tools and models that the guide names; they take part in turns like all others."""
LISTED: Mapping[str, CapabilitySpec] = {**SHIPPED, **BUILT_IN}


@cache
def find_missing_folder(name: str) -> str:
    """Return the missing folder of a shipped capability or of a capability it needs, or an empty text."""
    folder = LISTED[name].package
    module_spec = find_spec(folder)
    if module_spec is None or module_spec.origin is None:  # an empty folder has none
        return folder
    return next(filter(None, map(find_missing_folder, LISTED[name].needs)), "")
