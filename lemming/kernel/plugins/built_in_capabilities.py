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
            tools={
                "file_read": "lemming.capabilities.toolbox.file_tools:FileReadTool",
                "file_write": "lemming.capabilities.toolbox.file_tools:FileWriteTool",
                "file_list": "lemming.capabilities.toolbox.file_tools:FileListTool",
                "file_edit": "lemming.capabilities.toolbox.edit_tools:FileEditTool",
                "file_append": "lemming.capabilities.toolbox.edit_tools:FileAppendTool",
                "file_move": "lemming.capabilities.toolbox.edit_tools:FileMoveTool",
                "file_search": "lemming.capabilities.toolbox.file_search:FileSearchTool",
                "search": "lemming.capabilities.toolbox.search_tool:SearchTool",
                "shell": "lemming.capabilities.toolbox.shell_tool:ShellTool",
                "memory_read": "lemming.capabilities.toolbox.memory_tools:MemoryReadTool",
                "memory_write": "lemming.capabilities.toolbox.memory_tools:MemoryWriteTool",
                "store_read": "lemming.capabilities.toolbox.store_tools:StoreReadTool",
                "store_write": "lemming.capabilities.toolbox.store_tools:StoreWriteTool",
                "read_document": "lemming.capabilities.toolbox.document_tool:ReadDocumentTool",
                "http_get": "lemming.capabilities.toolbox.http_tools:HttpGetTool",
                "http_post": "lemming.capabilities.toolbox.http_tools:HttpPostTool",
                "remind_me": "lemming.capabilities.toolbox.reminders:RemindMeTool",
                "create_agent": "lemming.capabilities.toolbox.agent_tools:CreateAgentTool",
                "list_agents": "lemming.capabilities.toolbox.agent_tools:ListAgentsTool",
                "tool_search": "lemming.capabilities.toolbox.tool_search:ToolSearch",
            },
            org=dict.fromkeys(
                ("http", "reminders", "shell"), "lemming.capabilities.toolbox.toolbox_settings:ToolboxOrgSettings"
            ),
            source="lemming.capabilities.toolbox.functions.tool_files:FunctionToolSource",
            has_own_tools=lambda settings, _: settings.tool_files,
            has_side_effects=lambda config, _: config.org.tool_files,
            function_tool="lemming.capabilities.toolbox.functions.function_tool:FunctionTool",
        ),
        CapabilitySpec(
            "scripted",
            "lemming.capabilities.scripted_models.scripted_capability:ScriptedAnswersCapability",
            backends={
                "scripted": "lemming.capabilities.scripted_models.scripted_provider:ScriptedProvider",
                "replay": "lemming.capabilities.scripted_models.journal_provider:ReplayProvider",
            },
        ),
        CapabilitySpec(
            HOSTED,
            "lemming.capabilities.hosted_models.hosted_capability:HostedModelsCapability",
            server_profiles="lemming.capabilities.hosted_models.rejected_fields:ServerProfiles",
            backends={
                "openai": "lemming.capabilities.hosted_models.openai_provider:OpenAIProvider",
                "anthropic": "lemming.capabilities.hosted_models.anthropic_provider:AnthropicProvider",
                "ollama": "lemming.capabilities.hosted_models.ollama_provider:OllamaProvider",
            }
            | {name: f"lemming.capabilities.hosted_models.compatible_providers:{name}" for name in MODEL_SERVERS},
        ),
    )
}
"""Capabilities of the tools and models that the guide names; they take part in turns like all others."""
