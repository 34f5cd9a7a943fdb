"""The tool `shell`: run a command in the agent's workspace, confined by `lemming.libraries.sandbox.sandbox_runner`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.redaction.secrets import find_partial_secret, redact_untrusted
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import ANYWHERE, NOWHERE, EngineTool, Places, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.sandbox.sandbox_settings import get_shell_settings

COMMAND_LIMIT_BYTES = 64 << 10


class ShellTool(EngineTool):
    """Runs a shell command."""

    name = "shell"
    description = "Run a command with /bin/sh in your workspace. No network, and no other file can be changed."
    tool_class = "execute"
    repeatable = False
    keeps_deadline = True  # config/org.json shell.timeout_s: the command is killed, not left behind
    output_limit_bytes = 2 << 20  # config/org.json shell.max_output_bytes is the limit here

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return no path for a command confined to the workspace, or any path without a sandbox."""
        return {ANYWHERE: f'tool {self.name} with shell.sandbox "none"'} if _is_unconfined(settings) else NOWHERE

    def describe_side_effects(self, settings: OrgSettings) -> str:
        """Return a description of the side effects of an unconfined command, empty with a sandbox."""
        return "run any command with your rights (shell.sandbox is none)" if _is_unconfined(settings) else ""

    def plan(
        self, context: ToolContext, command: Annotated[str, describe_field("The command line.", min_length=1)]
    ) -> ToolResult:
        """Run the command. The result begins with the exit status, followed by the output."""
        from lemming.libraries.sandbox.sandbox_runner import (
            run_confined,
        )  # slow to import, and most turns run no command

        if "\0" in command or len(command.encode("utf-8", "replace")) > COMMAND_LIMIT_BYTES:
            raise ToolError(f"{self.name}: a command has no NUL and at most {COMMAND_LIMIT_BYTES} bytes")
        shell_settings = get_shell_settings(context.settings)
        settings = replace(shell_settings, timeout_s=min(shell_settings.timeout_s, context.limit_s))
        workspace = paths.workspace_folder(context.agent.name)
        extensions = {**context.settings.extensions, "shell": settings}
        outcome = run_confined(command, context.base, workspace, replace(context.settings, extensions=extensions))
        verdict = outcome.verdict
        status = {
            "exit": f"exit status {verdict.status}",
            "signal": f"killed by signal {verdict.status}",
            "timeout": f"killed after {settings.timeout_s:g} s",
            "processes": "killed: too many processes",
            "memory": f"killed: its processes took more than {settings.max_memory_bytes} bytes of memory",
            "disk": f"killed: your workspace holds {verdict.limit}; remove what you do not need",
            "cancelled": "killed: the engine was stopped",
        }[verdict.ended]
        text = outcome.output.decode("utf-8", "replace")
        cut = f"\n[output cut: the first {len(outcome.output)} of {outcome.output_bytes} bytes are shown]"
        is_cut = outcome.output_bytes > len(outcome.output)
        text_with_status = f"{status}\n{redact_truncated(text) + cut if is_cut else text}".rstrip()
        if verdict.ended == "timeout":
            return ToolResult(False, text_with_status, outcome="timed_out")
        return ToolResult(status == "exit status 0", text_with_status)


def _is_unconfined(settings: OrgSettings) -> bool:
    return get_shell_settings(settings).sandbox == "none"


def redact_truncated(text: str) -> str:
    """Return a truncated foreign text without secrets, including a partial secret at the end."""
    text = redact_untrusted(text)
    length, name = find_partial_secret(text)
    return f"{text[:-length]}[redacted {name}]" if length else text
