"""Model servers on loopback that play a script, so that released harnesses run offline. Standard library only.

One server speaks Anthropic Messages, OpenAI Responses, OpenAI chat completions and Gemini's generateContent, by path:

    with ModelServer([{"write": ["a.txt", "one\\n"]}, {"say": "Written."}]) as server:
        run_something(base_url=server.url)  # http://127.0.0.1:PORT
    assert [request.replies for request in server.requests] == [0, 1]

As a program: `python model_servers.py PORT SCRIPT.json [LOG]` (PORT 0: any; the URL is the first line of the output).

A script is a list of steps. The server plays the step whose number is the number of replies that the conversation
already holds, so it needs no memory, and a session that is killed and resumed goes on at its step. Past the last step
it says "Done.". A request without tools (a title, a topic) is answered with "A title" and plays no step.
A script may also be a dict of lists: the first key that the conversation's text contains selects the list, and the key
"" fits every conversation. So several workers use one server: {"task-a": [...], "task-b": [...]}.

Keys of a step, all optional:

    say          text of the reply; "Done." for a step without a tool call
    write        [path, text], or a list of such pairs: one file-writing call each (by the shell where no tool writes)
    run          a shell command, or a list: one shell call each
    call         [tool, input], or a list: a call of this tool with exactly this input
    is_outside   true: shell calls ask to leave the harness's own sandbox (OpenAI Responses only)
    usage        [input, output, cached, written] tokens; input includes cached and written. Default [100, 20, 0, 0]
    fail         HTTP statuses that are answered first, one for each attempt: [429, 500]. "always" as the last
                 element repeats the status before it
    retry_after  seconds, sent as the header of those answers
    wait         seconds before the first byte
    slow         seconds between two pieces of the stream (text is sent word by word)
    hang         true: send the start of the stream, then nothing more until the server is closed
    drop         true: send the start of the stream, then close the connection
    garbage      true: answer 200 with bytes that are no JSON

A relative path in `write` is relative to the folder that the harness names in its prompt (`folder=` sets another one).
`server.requests` holds a `ModelRequest` for each request, in order.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import threading
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from model_apis import Call, ChatApi, Pieces, Reply, find_api

Step = dict[str, Any]
Script = list[Step] | dict[str, list[Step]]

SHELL_TOOLS = ("exec_command", "shell_command", "shell", "local_shell", "bash", "Bash", "run_shell_command")
WRITE_TOOLS = ("write", "Write", "mcp__acp__Write", "write_file")
KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


@dataclass(frozen=True)
class ModelRequest:
    """A request as it arrived. `replies`: replies of the model that the conversation holds."""

    path: str
    model: str
    replies: int
    tools: list[str]
    is_streamed: bool
    key: str
    text: str  # the whole body


def to_pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return the pairs that a key of a step holds: none, one, or a list of them."""
    if not value:
        return []
    return [tuple(value)] if isinstance(value[0], str) else [tuple(pair) for pair in value]


def find_folder(body: str) -> str:
    """Return the working folder that a harness names in its prompt, or an empty text."""
    match = re.search(r"(?:[Ww]orking directory|<cwd>|current working directory is):? *(/[^\s\"\\<]+)", body)
    return match.group(1) if match else ""


def plan_calls(step: Step, tools: list[str], folder: str) -> list[Call]:
    """Return the step's tool calls, in words of the tools that the harness offers."""
    writer = next((tool for tool in WRITE_TOOLS if tool in tools), "")
    shell = next((tool for tool in SHELL_TOOLS if tool in tools), "")
    run = step.get("run", [])
    commands = [run] if isinstance(run, str) else list(run)
    calls: list[tuple[str, dict[str, Any]]] = []
    for path, text in to_pairs(step.get("write")):
        if not writer:
            commands.insert(len(calls), f"printf %s {shlex.quote(text)} > {shlex.quote(path)}")
            continue
        full = str(Path(folder) / path)
        name = {"write": "path", "Write": "file_path"}.get(writer, "file_path")
        keys = {"filePath": full, "path": full} if writer == "write" else {name: full}
        calls.append((writer, {**keys, "content": text}))
    for command in commands if shell else []:
        arguments: dict[str, Any] = {"cmd" if shell == "exec_command" else "command": command}
        if shell in ("shell", "local_shell"):
            arguments = {"command": ["bash", "-lc", command]}
        elif shell in ("Bash", "bash", "run_shell_command"):
            arguments["description"] = "run a command"
        if step.get("is_outside"):
            arguments |= {"sandbox_permissions": "require_escalated", "justification": "the sandbox forbids this"}
        calls.append((shell, arguments))
    calls += to_pairs(step.get("call"))
    return [Call(tool, arguments, number) for number, (tool, arguments) in enumerate(calls)]


class QuietServer(ThreadingHTTPServer):
    """An HTTP server that says nothing about clients that were killed, as some tests do."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class ModelServer:
    """A server of one script. It listens while it is entered, in threads of this process."""

    def __init__(self, script: Script, *, folder: str = "", port: int = 0, log: Path | None = None) -> None:
        self.script, self.folder, self.log = script, folder, log
        self.requests: list[ModelRequest] = []
        self.lock, self.is_closed = threading.Lock(), threading.Event()
        self.failures: dict[tuple[str, int], int] = {}
        handler = type("BoundHandler", (Handler,), {"server_of_models": self})
        self.http = QuietServer(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_closed.set()
        self.http.shutdown()
        self.http.server_close()

    def select(self, text: str, replies: int) -> tuple[str, Step]:
        """Return the conversation's key in the script, and its step."""
        if isinstance(self.script, list):
            key, steps = "", self.script
        else:
            key, steps = next(((key, steps) for key, steps in self.script.items() if key in text), ("", []))
        return key, steps[replies] if replies < len(steps) else {"say": "Done."}

    def next_failure(self, key: str, replies: int, statuses: list[int | str]) -> int | None:
        """Return the HTTP status to answer with, or None once the step's failures are used up."""
        with self.lock:
            count = self.failures.get((key, replies), 0)
            self.failures[key, replies] = count + 1
        if statuses[-1:] == ["always"]:
            statuses = statuses[:-1]
            count = min(count, len(statuses) - 1)
        return int(statuses[count]) if count < len(statuses) else None

    def note(self, request: ModelRequest) -> None:
        """Keep a request for the test, and in the log of a server that is a program."""
        with self.lock:
            self.requests.append(request)
            if self.log:
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**asdict(request), "text": ""}) + "\n")


class Handler(BaseHTTPRequestHandler):
    """The HTTP half."""

    protocol_version = "HTTP/1.1"
    server_of_models: ModelServer

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def send_json(self, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_body(json.dumps(body).encode(), status, headers or {})

    def send_body(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        sizes = {"content-type": "application/json", "content-length": str(len(data))}
        for name, value in {**sizes, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def send_stream(self, pieces: Pieces, step: Step, is_done_sent: bool) -> None:
        """Send server-sent events, as slowly and as incompletely as the step says."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for number, (kind, data) in enumerate(pieces):
            if number == 1 and step.get("drop"):
                return
            if number == 1 and step.get("hang"):
                self.server_of_models.is_closed.wait()
                return
            event = f"event: {kind}\n" if kind else ""
            body = {"type": kind, **data} if kind else data
            self.wfile.write(f"{event}data: {json.dumps(body)}\n\n".encode())
            self.wfile.flush()
            if step.get("slow"):
                self.server_of_models.is_closed.wait(float(step["slow"]))
        if is_done_sent:
            self.wfile.write(b"data: [DONE]\n\n")

    def do_HEAD(self) -> None:
        self.send_body(b"", 200, {})

    def do_GET(self) -> None:
        self.send_json({"models": [], "data": []})

    def do_POST(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the harness was stopped
            self.answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def answer(self, data: bytes) -> None:
        body, text, api, server = json.loads(data or b"{}"), data.decode(), find_api(self.path), self.server_of_models
        if "count_tokens" in self.path or "countTokens" in self.path:
            return self.send_json({"input_tokens": 10, "totalTokens": 10})
        if api is None:
            return self.send_json({"error": {"message": f"no such path: {self.path}"}}, 404)
        replies, tools = api.count_replies(body), api.list_tools(body)
        model = str(body.get("model") or self.path.partition("models/")[2].partition(":")[0])
        is_streamed = bool(body.get("stream")) or "streamGenerateContent" in self.path
        names = ("authorization", "x-api-key", "x-goog-api-key")
        keys = [self.headers[name] for name in names if self.headers.get(name)]
        server.note(ModelRequest(self.path, model, replies, tools, is_streamed, " ".join(keys), text))
        key, step = server.select(text, replies) if tools else ("", {"say": "A title"})
        status = server.next_failure(key, replies, step["fail"]) if step.get("fail") else None
        if status:
            error = {"type": KINDS.get(status, "api_error"), "message": f"stand-in failure {status}"}
            headers = {"retry-after": str(step["retry_after"])} if "retry_after" in step else {}
            return self.send_json({"type": "error", "error": error}, status, headers)
        if step.get("wait"):
            server.is_closed.wait(float(step["wait"]))
        if step.get("garbage"):
            return self.send_body(b"<html>not a model", 200, {})
        calls = plan_calls(step, tools, server.folder or find_folder(text))
        used = [*step.get("usage", [100, 20]), 0, 0][:4]
        said = str(step.get("say", "" if calls else "Done."))
        message = api.build(Reply(replies, model, said, calls, (used[0], used[1], used[2], used[3])))
        if is_streamed:
            return self.send_stream(api.stream(message), step, isinstance(api, ChatApi))
        return self.send_json(message)


def main() -> None:
    """Serve a script until killed. Arguments: PORT SCRIPT.json [LOG]."""
    port, script, *log = sys.argv[1:]
    text = Path(script).read_text(encoding="utf-8")
    server = ModelServer(json.loads(text), port=int(port), log=Path(log[0]) if log else None)
    print(server.url, flush=True)
    server.http.serve_forever()


if __name__ == "__main__":
    main()
