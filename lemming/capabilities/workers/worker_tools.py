"""Tools of a worker's turn beside `merge`: check a patch, and permit what a running harness asks for.

Their recorded results are the evidence: the exit status of a check, and the grant for a tool of the harness.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

from lemming.capabilities.workers.attempts import Attempt, WorkerJob, state_folder
from lemming.capabilities.workers.harnesses.harness_types import Harness, HarnessRun
from lemming.capabilities.workers.merge_tool import MERGE, CallOnly, load_patch
from lemming.capabilities.workers.repositories.user_repository import open_repository
from lemming.capabilities.workers.running.worker_run import run_harness
from lemming.capabilities.workers.worker_provider import fill_clone, list_readable
from lemming.capabilities.workers.workspace_settings import get_workspace, locate_repository
from lemming.ext import TurnView, describe_field
from lemming.kernel.base.blocking_deadline import WorkAbandoned
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext

CHECK, PERMIT = "check_patch", "permit"
TAIL_CHARS = 4_000


class CheckPatchTool(CallOnly):
    """Runs a command in a fresh clone with a recorded patch, in the sandbox. Nothing of it is kept but its result."""

    name = CHECK
    description = (
        "Run a command in a fresh clone with a patch applied; the exit status and the end of the output are evidence."
    )
    tool_class = "read"

    def plan(
        self,
        context: ToolContext,
        base: Annotated[str, describe_field("Commit that the patch applies to.")],
        patch: Annotated[str, describe_field("SHA-256 of the patch; empty: none.")],
        command: Annotated[list[str], describe_field("Program and arguments.")],
        timeout_s: Annotated[float, describe_field("Time limit in seconds.", ge=0)] = 600.0,
    ) -> ToolResult:
        """Run the command. The output is JSON with `command`, `status` and `tail`."""
        settings = get_workspace(context.agent)
        if settings is None:
            raise ToolError("check_patch must be called by an agent with a workspace")
        attempt = Attempt(context.call_id, state_folder(context.base) / "checks" / context.call_id.replace("/", "-"))
        attempt.remove()
        try:
            repository = open_repository(locate_repository(context.base, settings.repository))
            fs.make_root(attempt.folder)
            job = WorkerJob(
                key=attempt.key, base=base, agent=context.agent.name, model="", repository=f"{repository.git_dir}",
                patch=b64encode(load_patch(context.org, patch)).decode() if patch else "",
                is_confined=settings.sandbox == "required", is_full_copy=settings.copy == "full",
                readable=settings.readable,
            )  # fmt: skip
            fill_clone(job, attempt, repository)
            # Through a shell, so that a relative program is one of the clone.
            program = ("/bin/sh", "-c", 'exec "$@"', "check", *command)
            run = HarnessRun(
                harness=Harness(name="check", program=program), job=job, attempt=attempt, prompt="",
                readable=list_readable(job, repository),
                deadline_s=min(timeout_s, context.limit_s), silence_s=timeout_s, stop=context.stop,
            )  # fmt: skip
            end = run_harness(run)
            if end.ended_by == "stop":
                raise WorkAbandoned(
                    "the engine ended during a check"
                )  # its status says nothing: the next run repeats it
        finally:
            attempt.remove()
        tail = redact_values(end.text or end.message)[-TAIL_CHARS:]
        receipt = {"command": command, "status": end.exit_status, "tail": tail}
        if end.ended_by:
            receipt["ended_by"] = end.ended_by
        return ToolResult(end.exit_status == 0 and not end.ended_by, dump_compact(receipt).decode())


class PermitTool(CallOnly):
    """Permits a tool of a running harness. Gates decide about the call, and persons if a gate asks them."""

    name = PERMIT
    description = "Permit a tool that a running harness asks for."
    tool_class = "execute"

    def plan(
        self,
        context: ToolContext,
        tool: Annotated[str, describe_field("Tool of the harness.")],
        input: Annotated[dict[str, Any], describe_field("Input of the tool.")],
        run: Annotated[dict[str, Any], describe_field("The run that goes on: key, run, base.")],
    ) -> ToolResult:
        """Record the grant, and the run that continues."""
        return ToolResult(True, dump_compact({"grant": {"tool": tool, "input": input}, "run": run}).decode())


def make_goal_check(turn: TurnView, command: list[str]) -> tuple[str, Json]:
    """Return the tool and the arguments that check what a worker's turn has left on its branch, for a goal."""
    outputs = [result["output"] for result in turn.results if result["tool"] == MERGE and result["success"]]
    merged = parse(outputs[-1]) if outputs else {}
    base = merged.get("merged") or merged.get("already") or turn.inputs.given["workers"]["base"]
    return CHECK, {"base": base, "patch": "", "command": command}
