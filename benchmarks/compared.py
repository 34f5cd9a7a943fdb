"""Run the other frameworks' programs in examples/compared, each framework in a separate environment.

    python -m benchmarks.compared FOLDER

Each framework gets an environment in FOLDER, about a gigabyte in total. The model is a local server with
OpenAI's two protocols and scripted answers. Prints a line for each program. The exit status is 1 if any
result differs from the page.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import venv
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
PACKAGES = {
    "LangGraph": (
        "langgraph==1.2.24",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langchain==1.5.2",
        "langchain-openai==1.7.4",
    ),
    "CrewAI": ("crewai==1.15.30",),
    "OpenAI Agents SDK": ("openai-agents==0.24.0",),
}
QUIET_ENVIRONMENT = {
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}
Json = dict[str, Any]


def make_text_line(text: str | Json, **fields: Any) -> Json:
    """Return a script line that answers with a text, or with an object as JSON text."""
    return {"text": text if isinstance(text, str) else json.dumps(text), **fields}


HANDOFF_CALLS: dict[str, Json] = {
    "LangGraph": {"call": "hand_to_billing", "args": {}},
    "CrewAI": {
        "call": "delegate_work_to_coworker",
        "args": {"task": "Where is the refund?", "context": "A customer asks.", "coworker": "Billing"},
    },
    "OpenAI Agents SDK": {"call": "transfer_to_billing", "args": {}},
}
APPROVAL_LINES: dict[str, list[Json]] = {
    "CrewAI": [make_text_line({"outcome": "approved"})],
    "OpenAI Agents SDK": [{"call": "publish", "args": {"text": "Bees are busy."}}, make_text_line("It is published.")],
}
HIGH_USAGE = {"usage": (2_000_000, 100)}


def build_script(task: int, framework: str) -> list[Json]:
    """Return the model's answers in order. Any further call gets the text `nothing is scripted`."""
    return [
        [{"call": "word_count", "args": {"text": "one two three"}}, make_text_line({"words": 3, "is_long": False})],
        [HANDOFF_CALLS[framework], make_text_line("It was sent on Monday."), make_text_line("It was sent on Monday.")],
        [
            make_text_line("Bees."),
            make_text_line({"score": 5, "advice": "say more"}),
            make_text_line("Bees are busy."),
            make_text_line({"score": 8, "advice": ""}),
            *APPROVAL_LINES.get(framework, []),
        ],
        [{"call": "tickets", "args": {}, **HIGH_USAGE}, make_text_line("Nothing burns.", **HIGH_USAGE)] * 5,
        [
            make_text_line("Bees fly."),
            make_text_line("They fly.", sleeps_s=5),
            make_text_line("They fly."),
            make_text_line("How they fly!"),
        ],
    ][task - 1]


class ScriptedModelServer(ThreadingHTTPServer):
    """A server with a scripted model. `calls` counts the requests."""

    daemon_threads = True

    def __init__(self, script: list[Json]) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedModelHandler)
        self.script, self.calls, self.numbers = [*script], 0, count(1)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def pop_line(self) -> Json:
        """Return the next line of the script."""
        self.calls += 1
        return self.script.pop(0) if self.script else make_text_line("nothing is scripted")


class ScriptedModelHandler(BaseHTTPRequestHandler):
    """Handler that answers in the protocol of the request."""

    server: ScriptedModelServer

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer with the next line of the script."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        line, number = self.server.pop_line(), next(self.server.numbers)
        time.sleep(line.get("sleeps_s", 0))
        format_reply = _format_response if self.path.endswith("/responses") else _format_completion
        raw = json.dumps(format_reply(line, number, body["model"])).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked was killed
            self.wfile.write(raw)


def _format_response(line: Json, number: int, model: str) -> Json:
    input_tokens, output_tokens = line.get("usage", (100, 20))
    content: Json = {"type": "output_text", "text": line.get("text"), "annotations": []}
    item: Json = {"type": "message", "role": "assistant", "content": [content]}
    if "call" in line:
        item = {"type": "function_call", "call_id": f"c{number}", "name": line["call"]}
        item["arguments"] = json.dumps(line["args"])
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": input_tokens + output_tokens}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    reply = {"id": f"r{number}", "object": "response", "created_at": 1, "status": "completed", "model": model}
    choices = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    output = [{"id": f"m{number}", "status": "completed", **item}]
    return {**reply, **choices, "output": output, "usage": usage}


def _format_completion(line: Json, number: int, model: str) -> Json:
    input_tokens, output_tokens = line.get("usage", (100, 20))
    message: Json = {"role": "assistant", "content": line.get("text")}
    if "call" in line:
        function = {"name": line["call"], "arguments": json.dumps(line["args"])}
        message["tool_calls"] = [{"id": f"c{number}", "type": "function", "function": function}]
    end = "tool_calls" if "call" in line else "stop"
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    reply = {"id": f"x{number}", "object": "chat.completion", "created": 1, "model": model, "usage": usage}
    return {**reply, "choices": [{"index": 0, "message": message, "finish_reason": end}]}


def is_program_correct(task: int, python: Path, code: str, script: list[Json]) -> bool:
    """Run a program and return True for the result stated on the page."""
    with tempfile.TemporaryDirectory() as folder, ScriptedModelServer(script) as model:
        work = Path(folder)
        (work / "program.py").write_text(code)
        (work / "tickets.txt").write_text("one")
        if task == 4:  # its mornings come at once
            (work / "sitecustomize.py").write_text("import time\ntime.sleep = lambda seconds: None\n")
        address = f"http://127.0.0.1:{model.server_port}/v1"
        variables = {"HOME": folder, "PYTHONPATH": folder, "OPENAI_BASE_URL": address, "OPENAI_API_BASE": address}
        program: Any = {"cwd": work, "env": {**os.environ, **QUIET_ENVIRONMENT, **variables}, "text": True}
        if task == 5:
            with subprocess.Popen([python, "program.py"], stdout=subprocess.DEVNULL, **program) as interrupted:
                while model.calls < 2 and interrupted.poll() is None:
                    time.sleep(0.05)
                interrupted.kill()
        completed = subprocess.run(
            [python, "program.py"], input="yes, publish it\n", capture_output=True, timeout=300, **program
        )
        files = {file.name: file.read_text() for file in work.glob("*.txt")}
        model.shutdown()
    checks: list[bool] = [
        re.search(r"^3$", completed.stdout, re.MULTILINE) is not None,
        completed.stdout.strip().endswith("It was sent on Monday."),
        files.get("article.txt") == "Bees are busy.",
        files.get("reports.txt") == "Nothing burns.\n" * 3,
        completed.stdout.strip().endswith("How they fly!") and model.calls == 4,
    ]
    return checks[task - 1]


def main(folder: Path) -> int:
    """Run the other frameworks' programs of the page and return the number of wrong results."""
    page = (REPOSITORY / "examples/compared/README.md").read_text()
    failures = 0
    for task, section in enumerate(page.split("\n## ")[1:], 1):
        programs = re.findall(r"^([^\n]+):\n\n```python\n(.*?)```", section, re.MULTILINE | re.DOTALL)
        for framework, code in programs:
            if framework not in PACKAGES:
                continue
            environment = folder / framework.replace(" ", "-").lower()
            if not environment.exists():
                venv.create(environment, with_pip=True)
                install = [environment / "bin/pip", "install", "--quiet", *PACKAGES[framework]]
                subprocess.run(install, check=True)
            is_right = is_program_correct(task, environment / "bin/python", code, build_script(task, framework))
            failures += not is_right
            print(f"{'ok' if is_right else 'WRONG':<6}{framework:<18} {section.partition(chr(10))[0]}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]).absolute())))
