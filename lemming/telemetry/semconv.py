"""Names in traces: OpenTelemetry's conventions for generative AI, and custom names where none exist.

The conventions are in development: `VERSION` names the release used here. This module is the only place to
change for a newer release.
"""

from __future__ import annotations

from collections.abc import Mapping

VERSION = "gen-ai 0.1.0 (core 1.45.0)"
"""open-telemetry/semantic-conventions-genai v0.1.0: agent spans, client inference, tools, memory.

A workflow is an agent span with the operation `invoke_workflow`: its name is that of an agent. An agent in
the same process has no id and no version, and the model of its line as the model that it asks.
"""

# --- operations: the values of OPERATION, which begin the names of spans -----------------------

INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
OPERATION_OF_TOOL: Mapping[str, str] = {
    "memory_read": "search_memory",
    "memory_write": "upsert_memory",
    "search": "retrieval",
}
"""Tools of ours that are an operation of another name."""

# --- attributes ---------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
CONVERSATION = "gen_ai.conversation.id"
OUTPUT_TYPE = "gen_ai.output.type"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
SERVICE_NAME = "service.name"

# Only with content.
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# --- values ---------------------------------------------------------------------------------------

JSON = "json"
FUNCTION, EXTENSION = "function", "extension"
OTHER = "_OTHER"
"""Stand-in for an unknown value of a required attribute."""

# --- ours -------------------------------------------------------------------------------------------

TICK = "lemming.tick"
ENGINE_STARTS = "lemming.engine_starts"
TURN_STATUS = "lemming.turn.status"
TURN_END = "lemming.turn.end"
TURN_ATTEMPTS = "lemming.turn.attempts"
REQUEST = "lemming.request"
ENTRIES = "lemming.entries"
MEMORIES = "lemming.memories"
CREDITS = "lemming.credits"
COST_USD = "lemming.cost_usd"
CALL = "lemming.call"
CALL_FOR = "lemming.call.for"
MODEL_KEY = "lemming.model_key"
IS_BATCHED = "lemming.is_batched"
IS_ESTIMATED = "lemming.tokens_are_estimated"
ATTEMPTS = "lemming.attempts"
OUTCOME = "lemming.tool.outcome"
LEAVE_BY = "lemming.tool.leave_by"
ERROR_CODE = "lemming.error.code"
GATE_LINE, GATE_AT, GATE_THEN = "lemming.gate.line", "lemming.gate.at", "lemming.gate.then"
JUDGE, JUDGE_PASSES = "lemming.judge", "lemming.judge.passes"

FAILED_ATTEMPT = "lemming.failed_attempt"
GATE_SAID = "lemming.gate"
JUDGED = "lemming.judged"
"""Events of spans."""
