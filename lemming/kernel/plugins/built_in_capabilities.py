"""The part of the capability table for the tools and models that the guide names."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.kernel.plugins.capability_spec import CapabilitySpec

HOSTED = "hosted"
MODEL_SERVERS = (
    "azure", "cerebras", "deepseek", "fireworks", "gemini", "groq", "huggingface", "llamacpp", "lmstudio",
    "mistral", "openrouter", "together", "vllm", "xai",
)  # fmt: skip

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
                    "file_edit": ".edit_tools:FileEditTool",
                    "file_append": ".edit_tools:FileAppendTool",
                    "file_move": ".edit_tools:FileMoveTool",
                    "file_search": ".file_search:FileSearchTool",
                    "search": ".search_tool:SearchTool",
                    "shell": ".shell_tool:ShellTool",
                    "memory_read": ".memory_tools:MemoryReadTool",
                    "memory_write": ".memory_tools:MemoryWriteTool",
                    "store_read": ".store_tools:StoreReadTool",
                    "store_write": ".store_tools:StoreWriteTool",
                    "read_document": ".document_tool:ReadDocumentTool",
                    "http_get": ".http_tools:HttpGetTool",
                    "http_post": ".http_tools:HttpPostTool",
                    "remind_me": ".reminders:RemindMeTool",
                    "create_agent": ".agent_tools:CreateAgentTool",
                    "list_agents": ".agent_tools:ListAgentsTool",
                    "tool_search": ".tool_search:ToolSearch",
                },
                "tool_sources": {"tool_files": ".functions.tool_files:FunctionToolSource"},
                "function_tools": {"function": ".functions.function_tool:FunctionTool"},
                "permissions": {"toolbox": ".toolbox_capability:iter_permissions"},
            },
        ),
        CapabilitySpec(
            "scripted",
            "lemming.capabilities.scripted_models.scripted_capability:ScriptedAnswersCapability",
            provides={
                "model_providers": {
                    "scripted": ".scripted_provider:ScriptedProvider",
                    "replay": ".journal_provider:ReplayProvider",
                }
            },
        ),
        CapabilitySpec(
            HOSTED,
            "lemming.capabilities.hosted_models.hosted_capability:HostedModelsCapability",
            provides={
                "model_providers": {
                    "openai": ".openai_provider:OpenAIProvider",
                    "anthropic": ".anthropic_provider:AnthropicProvider",
                    "ollama": ".ollama_provider:OllamaProvider",
                }
                | {name: f".compatible_providers:{name}" for name in MODEL_SERVERS},
                "server_profiles": {"hosted": ".rejected_fields:ServerProfiles"},
            },
        ),
    )
}
"""Capabilities of the tools and models that the guide names; they take part in turns like all others."""
