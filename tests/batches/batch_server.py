"""A server with OpenAI's and Anthropic's batch API over a real loopback socket, and with their live calls.

A batch is over at its `looks`-th look; `looked` is set at the first. What comes of each call is set by
agent in `outcomes`: `ok` (the default), `error`, `expired`, `missing`, `garbage`. `trouble` makes single
requests fail.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fault_server import ANSWER, answer_body
from loopback import Loopback, Quiet

Json = dict[str, Any]


@dataclass
class Sent:
    """A batch that the server has."""

    id: str
    items: list[Json]
    path: str = "/v1/messages"
    metadata: Json = field(default_factory=dict)
    looks: int = 0
    is_cancelled: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def agents(self) -> list[str]:
        """Whose calls it holds, in their order."""
        return [agent_of(item["custom_id"]) for item in self.items]


@dataclass(frozen=True)
class Trouble:
    """How the next `times` requests fail whose `METHOD path` ends like this.

    `status` is what they get instead; 0 cuts the connection. `is_done_first`: the server has done what it
    was asked, and only its answer is lost.
    """

    ending: str
    status: int = 503
    times: int = 1
    is_done_first: bool = False


class BatchServer(Loopback):
    """The server, from `start` to `stop`, and what it was asked."""

    def __init__(self) -> None:
        self.looks = 1
        self.outcomes: dict[str, str] = {}
        self.trouble: list[Trouble] = []
        self.batches: dict[str, Sent] = {}
        self.files: dict[str, bytes] = {}
        self.live: list[Json] = []
        self.requests: list[str] = []
        self.text = ANSWER
        self.looked = threading.Event()
        self.lock = threading.RLock()
        self._met: Counter[Trouble] = Counter()
        self.__post_init__()

    @property
    def custom_ids(self) -> list[str]:
        """The ids of all calls that came in batches, in the order in which they came."""
        return [item["custom_id"] for sent in self.batches.values() for item in sent.items]

    def next_trouble(self, asked: str) -> Trouble | None:
        """Return what is to go wrong with a request, and count it."""
        for trouble in self.trouble:
            if asked.endswith(trouble.ending) and self._met[trouble] < trouble.times:
                self._met[trouble] += 1
                return trouble
        return None

    def add(self, sent: Sent) -> Sent:
        """Keep a batch."""
        self.batches[sent.id] = sent
        return sent

    def is_over(self, sent: Sent) -> bool:
        return sent.is_cancelled or sent.looks >= self.looks

    def outcome(self, custom_id: str) -> str:
        return self.outcomes.get(agent_of(custom_id), "ok")


def agent_of(custom_id: str) -> str:
    """Return the agent that a custom id names."""
    found = re.match(r"[0-9]+-(.*)-[0-9]+-[0-9a-f]+$", custom_id)
    assert found, custom_id
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", custom_id)
    return found[1]


class _Handler(Quiet):
    disable_nagle_algorithm = True  # it would add 40 ms to every answer

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        self._serve()

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        self._serve()

    def _serve(self) -> None:
        owner = self.server.owner
        self.raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, query = self.path.partition("?")
        asked = f"{self.command} {path}"
        with owner.lock:
            owner.requests.append(asked)
            trouble = owner.next_trouble(asked)
            if trouble is None or trouble.is_done_first:
                answer = self._answer(owner, path, dict(re.findall("([a-z_]+)=([^&]*)", query)))
            if trouble and trouble.status:
                self._send(trouble.status, b'{"error": {"message": "injected"}}')
            elif trouble:
                self.send_response(200)
                self.send_header("content-length", "100000")
                self.end_headers()
                self.wfile.write(b'{"half": ')
                self.close_connection = True
            else:
                self._send(200, answer)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, owner: BatchServer, path: str, query: dict[str, str]) -> bytes:
        speaks_anthropic = path.startswith("/v1/messages/batches")
        answers = _Anthropic(owner) if speaks_anthropic else _OpenAI(owner)
        parts = path.strip("/").split("/")[3 if speaks_anthropic else 2 :]
        if path == "/v1/files":
            return answers.upload(self.raw)
        if path.startswith("/v1/files/"):
            return owner.files[parts[0]]
        if not path.startswith(("/v1/batches", "/v1/messages/batches")):
            owner.live.append(json.loads(self.raw))
            return json.dumps(answer_body(path, owner.text)).encode()
        if not parts:
            return answers.create(json.loads(self.raw)) if self.raw else answers.list(query)
        sent = owner.batches[parts[0]]
        if parts[1:] == ["cancel"]:
            sent.is_cancelled = True
        elif parts[1:] == ["results"]:
            return b"".join(answers.lines(sent))
        else:
            sent.looks += 1
            owner.looked.set()
        return json.dumps(answers.shown(sent)).encode()


class _OpenAI:
    """OpenAI's side: a batch is made from an uploaded file, and its answers are files."""

    def __init__(self, owner: BatchServer) -> None:
        self.owner = owner

    def upload(self, raw: bytes) -> bytes:
        """Keep the file part of a form."""
        assert b'name="purpose"\r\n\r\nbatch\r\n' in raw
        name = f"file-{len(self.owner.files) + 1}"
        lines = [line for line in raw.splitlines() if line.startswith(b'{"custom_id"')]
        self.owner.files[name] = b"\n".join(lines)
        return json.dumps({"id": name, "object": "file"}).encode()

    def create(self, asked: Json) -> bytes:
        assert asked["completion_window"] == "24h"
        items = [json.loads(line) for line in self.owner.files[asked["input_file_id"]].splitlines()]
        assert {item["url"] for item in items} == {asked["endpoint"]}
        number = len(self.owner.batches) + 1
        sent = Sent(f"batch_{number}", items, asked["endpoint"], asked["metadata"])
        return json.dumps(self.shown(self.owner.add(sent))).encode()

    def list(self, query: dict[str, str]) -> bytes:
        return _page(self.owner, query.get("after"), self.shown)

    def shown(self, sent: Sent) -> Json:
        plain: Json = {
            "id": sent.id,
            "object": "batch",
            "status": "in_progress",
            "created_at": int(sent.created.timestamp()),
            "metadata": sent.metadata,
            "request_counts": {"total": len(sent.items), "completed": 0, "failed": 0},
        }
        if not self.owner.is_over(sent):
            return plain
        good, bad = f"{sent.id}-out", f"{sent.id}-errors"
        lines = list(self.lines(sent))
        self.owner.files[good] = b"".join(line for line in lines if b'"status_code": 200' in line)
        self.owner.files[bad] = b"".join(line for line in lines if b'"status_code": 200' not in line)
        status = "cancelled" if sent.is_cancelled else "completed"
        return {
            **plain,
            "status": status,
            "output_file_id": good if self.owner.files[good] else None,
            "error_file_id": bad if self.owner.files[bad] else None,
        }

    def lines(self, sent: Sent) -> Any:
        for item in reversed(sent.items):
            plain: Json = {"id": "r", "custom_id": item["custom_id"], "response": None, "error": None}
            match self.owner.outcome(item["custom_id"]):
                case "ok":
                    body = answer_body(sent.path, self.owner.text)
                    response: Json = {"status_code": 200, "request_id": "q", "body": body}
                case "error":
                    response = {"status_code": 400, "body": {"error": {"message": "too long"}}}
                case "expired":
                    plain["error"] = {"code": "batch_expired", "message": "not run within 24h"}
                    yield json.dumps(plain).encode() + b"\n"
                    continue
                case "garbage":
                    response = {"status_code": 200, "body": {"choices": "none"}}
                case _:
                    continue
            yield json.dumps({**plain, "response": response}).encode() + b"\n"


class _Anthropic(_OpenAI):
    """Anthropic's side: a batch is made from its calls, and its answers are one stream."""

    def create(self, asked: Json) -> bytes:
        sent = Sent(f"msgbatch_{len(self.owner.batches) + 1}", asked["requests"])
        return json.dumps(self.shown(self.owner.add(sent))).encode()

    def list(self, query: dict[str, str]) -> bytes:
        return _page(self.owner, query.get("after_id"), self.shown)

    def shown(self, sent: Sent) -> Json:
        is_over = self.owner.is_over(sent)
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if is_over else "processing"] = len(sent.items)
        return {
            "id": sent.id,
            "type": "message_batch",
            "processing_status": "ended" if is_over else "in_progress",
            "created_at": sent.created.isoformat(),
            "expires_at": (sent.created + timedelta(days=1)).isoformat(),
            "request_counts": counts,
            "results_url": f"{self.owner.url}/v1/messages/batches/{sent.id}/results" if is_over else None,
        }

    def lines(self, sent: Sent) -> Any:
        for item in reversed(sent.items):
            match self.owner.outcome(item["custom_id"]):
                case "ok":
                    result: Json = {"type": "succeeded", "message": answer_body("/messages", self.owner.text)}
                case "error":
                    error = {"type": "invalid_request_error", "message": "too long"}
                    result = {"type": "errored", "error": {"type": "error", "error": error}}
                case "expired":
                    result = {"type": "expired"}
                case "garbage":
                    result = {"type": "succeeded", "message": {"content": "none"}}
                case _:
                    continue
            yield json.dumps({"custom_id": item["custom_id"], "result": result}).encode() + b"\n"


def _page(owner: BatchServer, after: str | None, shown: Any) -> bytes:
    """Return the newest batches, two to a page, so that what is further down takes a second one."""
    newest = list(reversed(owner.batches.values()))
    names = [sent.id for sent in newest]
    first = names.index(after) + 1 if after else 0
    page = [shown(sent) for sent in newest[first : first + 2]]
    return json.dumps({"data": page, "has_more": first + 2 < len(newest)}).encode()


BatchServer.handler = _Handler
