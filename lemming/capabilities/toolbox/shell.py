"""`shell`: one command in the agent's workspace, confined by `lemming.capabilities.sandbox.run`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from lemming.capabilities.sandbox.settings import shell_of
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.redaction.secrets import redact_half
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org
from lemming.kernel.tools import ANYWHERE, NOWHERE, EngineTool, Places, ToolResult
from lemming.kernel.tools.context import ToolContext

COMMAND_LIMIT_BYTES = 64 << 10


class Shell(EngineTool):
    """Runs a shell command."""

    name = "shell"
    description = (
        "Run a command with /bin/sh in your workspace. No network, and no other file can be changed."
    )
    tool_class = "execute"
    repeatable = False
    keeps_deadline = True  # config/org.json shell.timeout_s: the command is killed, not left behind
    output_limit_bytes = 2 << 20  # config/org.json shell.max_output_bytes is the limit here

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return nothing: a command is confined to the workspace, unless the settings leave it open."""
        return {ANYWHERE: f'tool {self.name} with shell.sandbox "none"'} if _is_open(settings) else NOWHERE

    def reaches_outside(self, settings: Org) -> str:
        """Return what a command can do that nothing confines."""
        return "run any command with your rights (shell.sandbox is none)" if _is_open(settings) else ""

    def plan(
        self,
        context: ToolContext,
        command: Annotated[str, about("The command line.", min_length=1)],
    ) -> ToolResult:
        """Run the command; the result starts with how it ended, and what it printed follows."""
        from lemming.capabilities.sandbox.run import (
            run_confined,
        )  # slow to import, and most turns run no command

        if "\0" in command or len(command.encode("utf-8", "replace")) > COMMAND_LIMIT_BYTES:
            raise ToolError(f"{self.name}: a command has no NUL and at most {COMMAND_LIMIT_BYTES} bytes")
        shell = shell_of(context.settings)
        settings = replace(shell, timeout_s=min(shell.timeout_s, context.limit_s))
        workspace = paths.workspace_folder(context.agent.name)
        further = {**context.settings.further, "shell": settings}
        outcome = run_confined(command, context.base, workspace, replace(context.settings, further=further))
        verdict = outcome.verdict
        how = {
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
        said = f"{how}\n{redact_half(text) + cut if is_cut else text}".rstrip()
        if verdict.ended == "timeout":
            return ToolResult(False, said, outcome="timed_out")
        return ToolResult(how == "exit status 0", said)


def _is_open(settings: Org) -> bool:
    return shell_of(settings).sandbox == "none"
