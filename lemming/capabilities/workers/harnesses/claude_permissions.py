"""Permission questions of Claude Code: `--permission-prompt-tool stdio` with `--input-format stream-json`.

A question is a line `control_request` on standard output, its answer a line `control_response` on standard input, which
stays open until the result. A question that a person decides later is denied and ends the turn; the session is resumed
with the decision, and the model repeats the call.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import HarnessResult, PermissionQuestion, Permit
from lemming.capabilities.workers.harnesses.line_reader import get_object, get_text

LATER_MESSAGE = "A person decides about this. The work goes on after the decision."
DENIED_MESSAGE = "This is not permitted."


class ClaudePermissions:
    """Answers the permission questions of one run. `questions`: those that a person decides later."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self.questions: list[PermissionQuestion] = []
        self.is_finished = False
        """True once the result has been printed: standard input must be closed then, or the harness waits."""

    def first_input(self, prompt: str) -> bytes:
        """Return the lines that start the turn."""
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        return _encode({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    def answer(self, line: bytes) -> bytes | None:
        """Return the answer to a line of standard output, or None for a line that asks nothing.

        Blocks as long as `permit` does. A request other than a permission question is refused.
        """
        if b'"control_request"' not in line and b'"result"' not in line:
            return None
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(event, dict):
            return None
        if event.get("type") == "result":
            self.is_finished = True
        if event.get("type") != "control_request":
            return None
        request, number = get_object(event, "request"), get_text(event, "request_id")
        if get_text(request, "subtype") != "can_use_tool":
            error = f"request must be can_use_tool, got {get_text(request, 'subtype')!r}"
            return _respond({"subtype": "error", "request_id": number, "error": error})
        response = self._decide(get_text(request, "tool_name"), dict(get_object(request, "input")))
        return _respond({"subtype": "success", "request_id": number, "response": response})

    def conclude(self, result: HarnessResult) -> HarnessResult:
        """Return the result with the questions that wait. The interruption that they caused is no error."""
        if not self.questions:
            return result
        is_interrupted = result.error == "stopped"
        result = replace(result, error="", message="") if is_interrupted else result
        return replace(result, questions=tuple(self.questions))

    def _decide(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        question = PermissionQuestion(tool=tool, input=arguments)
        decision = self._permit(question)
        if decision == "allow":
            return {"behavior": "allow", "updatedInput": arguments}
        if decision == "later":
            self.questions.append(question)
            return {"behavior": "deny", "message": LATER_MESSAGE, "interrupt": True}
        return {"behavior": "deny", "message": DENIED_MESSAGE}


def _respond(response: dict[str, Any]) -> bytes:
    return _encode({"type": "control_response", "response": response})


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
