"""A rule-based model behind OpenAI's API: it obeys a schema, takes samples, and calls tools as told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from loopback import Loopback, Quiet
from native_server import Json, chat

REFUSALS = {
    "tools": "m does not support tools",
    "response_format": "response_format of type json_schema is not supported",
}


@dataclass
class ModelServer(Loopback):
    """The server, from `start` to `stop`.

    `refuses`: the fields it does not take. `calls`: how it calls a tool. `is_able`: whether it writes what
    was asked for without a schema.
    """

    refuses: tuple[str, ...] = ()
    calls: Literal["natively", "as text", "never"] = "natively"
    is_able: bool = True
    received: list[Json] = field(default_factory=list)

    def reply(self, body: Json) -> Json:
        """Return the answer to a request."""
        asked = "\n".join(message["content"] for message in body["messages"])
        if tools := body.get("tools"):
            return self._call(tools[0]["function"])
        if wanted := body.get("response_format"):
            schema = wanted.get("json_schema", {"schema": {"enum": [{}]}})["schema"]
            return chat(json.dumps(instance_of(schema)))
        if not self.is_able:
            return chat("Well, let me see.")
        if "Reply with one of these" in asked:
            return chat(next(line for line in asked.split("\n") if line.startswith('{"do"')))
        if "Reply with one line of JSON" in asked:
            return chat('{"category": "billing", "is_urgent": true, "summary": "Charged twice."}')
        return chat("Paris.")

    def _call(self, tool: Json) -> Json:
        arguments = json.dumps(instance_of(tool["parameters"]))
        if self.calls == "natively":
            return chat(None, ("a", tool["name"], arguments))
        written = f'{{"name": "{tool["name"]}", "arguments": {arguments}}}'
        return chat(written if self.calls == "as text" else "It is five.")


def instance_of(schema: Json) -> Any:
    """Return the first value that a schema allows."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance_of(schema["anyOf"][0])
    match schema["type"]:
        case "object":
            return {name: instance_of(inner) for name, inner in schema["properties"].items()}
        case "array":
            return [instance_of(schema["items"])]
        case "boolean":
            return True
        case _:
            return "one two"


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        model = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model.received.append(body)
        refused = next((name for name in model.refuses if name in body), "")
        answer = {"error": {"message": REFUSALS[refused]}} if refused else model.reply(body)
        answer |= {} if refused else {"usage": {"prompt_tokens": 10, "completion_tokens": 2}}
        written = json.dumps(answer).encode()
        self.send_response(400 if refused else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)


ModelServer.handler = _Handler
