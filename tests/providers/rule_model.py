"""A model that follows one rule, behind an OpenAI-compatible server: it needs what one tool gives.

Where the conversation has the result of that call under the role `tool`, it answers with it; else it calls
the tool. Other SDKs resume a conversation so that such a model finishes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from loopback import Loopback, Quiet
from native_server import chat

from lemming.testing import say

Json = dict[str, Any]


@dataclass
class RuleModel(Loopback):
    """The server, from `start` to `stop`; `received` are the questions, the oldest first.

    `wants`: the calls it makes in their order, each as a tool and its arguments; `together`: in one reply.
    `in_text`: it writes actions as text, and looks for results in what the user says. `fails_from`: the
    server is down from the question of this number on, from 0.
    """

    wants: list[tuple[str, Json]] = field(default_factory=list)
    together: bool = False
    fails_from: int | None = None
    in_text: bool = False
    received: list[Json] = field(default_factory=list)

    @property
    def sent(self) -> list[list[Json]]:
        """The messages of each question."""
        return [question["messages"] for question in self.received]

    def reply_to(self, messages: list[Json]) -> Json:
        """Return the answer to a conversation, by the rule."""
        if self.in_text:
            return chat(json.dumps(self._next_action(messages)))
        made = {
            call["id"]: (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for message in messages
            for call in message.get("tool_calls") or ()
        }
        given = {
            json.dumps(made[message["tool_call_id"]]): message["content"]
            for message in messages
            if message["role"] == "tool" and message["tool_call_id"] in made
        }
        open_ = [want for want in self.wants if json.dumps(want) not in given]
        if not open_:
            return chat(json.dumps(say(f"Done: {' and '.join(given.values())}", kind="response")))
        number = len(made)
        calls = open_ if self.together else open_[:1]
        return chat(None, *((f"id{number + n}", name, json.dumps(args)) for n, (name, args) in enumerate(calls)))

    def _next_action(self, messages: list[Json]) -> Json:
        """Return the action that a model without calls of its own writes next."""
        told = "\n".join(it["content"] for it in messages if it["role"] == "user")
        for name, args in self.wants:
            if not re.search(rf"^{name}(\(.*\))?( failed)?: ", told, re.MULTILINE):
                return {"do": name, **args}
        return {"do": "answer", "text": "Done."}


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        model = self.server.owner
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model.received.append(question)
        is_down = model.fails_from is not None and len(model.received) > model.fails_from
        body = json.dumps({} if is_down else model.reply_to(question["messages"])).encode()
        self.send_response(503 if is_down else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


RuleModel.handler = _Handler
