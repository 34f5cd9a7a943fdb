"""Runs the programs of examples/compared that are other frameworks', each in an environment of its own.

    python -m benchmarks.compared FOLDER

FOLDER gets an environment for each framework, a gigabyte in all, when it has none. The model is a server
here that speaks OpenAI's two protocols and answers from a script. Prints a line for each program; ends with
1 where one does not come to what the page says.
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
SILENT = {
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}
Json = dict[str, Any]


def told(text: str | Json, **more: Any) -> Json:
    """Return a line of a script that answers with a text, or with an object as one."""
    return {"text": text if isinstance(text, str) else json.dumps(text), **more}


HANDS_ON: dict[str, Json] = {
    "LangGraph": {"call": "hand_to_billing", "args": {}},
    "CrewAI": {
        "call": "delegate_work_to_coworker",
        "args": {"task": "Where is the refund?", "context": "A customer asks.", "coworker": "Billing"},
    },
    "OpenAI Agents SDK": {"call": "transfer_to_billing", "args": {}},
}
APPROVES: dict[str, list[Json]] = {
    "CrewAI": [told({"outcome": "approved"})],
    "OpenAI Agents SDK": [{"call": "publish", "args": {"text": "Bees are busy."}}, told("It is published.")],
}
COSTLY = {"usage": (2_000_000, 100)}


def script_of(task: int, framework: str) -> list[Json]:
    """Return what the model answers, in order; who is asked more says `nothing is scripted`."""
    return [
        [{"call": "word_count", "args": {"text": "one two three"}}, told({"words": 3, "is_long": False})],
        [HANDS_ON[framework], told("It was sent on Monday."), told("It was sent on Monday.")],
        [
            told("Bees."),
            told({"score": 5, "advice": "say more"}),
            told("Bees are busy."),
            told({"score": 8, "advice": ""}),
            *APPROVES.get(framework, []),
        ],
        [{"call": "tickets", "args": {}, **COSTLY}, told("Nothing burns.", **COSTLY)] * 5,
        [told("Bees fly."), told("They fly.", sleeps_s=5), told("They fly."), told("How they fly!")],
    ][task - 1]


class Model(ThreadingHTTPServer):
    """A server whose model says what a script says. `asked` counts the questions."""

    daemon_threads = True

    def __init__(self, script: list[Json]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.script, self.asked, self.numbers = [*script], 0, count(1)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next(self) -> Json:
        """Return the next line of the script."""
        self.asked += 1
        return self.script.pop(0) if self.script else told("nothing is scripted")


class Answering(BaseHTTPRequestHandler):
    """Answers a question in the protocol in which it came."""

    server: Model

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer with the next line."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        line, number = self.server.next(), next(self.server.numbers)
        time.sleep(line.get("sleeps_s", 0))
        form = _response if self.path.endswith("/responses") else _completion
        raw = json.dumps(form(line, number, body["model"])).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked was killed
            self.wfile.write(raw)


def _response(line: Json, number: int, model: str) -> Json:
    read, written = line.get("usage", (100, 20))
    said: Json = {"type": "output_text", "text": line.get("text"), "annotations": []}
    item: Json = {"type": "message", "role": "assistant", "content": [said]}
    if "call" in line:
        item = {"type": "function_call", "call_id": f"c{number}", "name": line["call"]}
        item["arguments"] = json.dumps(line["args"])
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    reply = {"id": f"r{number}", "object": "response", "created_at": 1, "status": "completed", "model": model}
    choices = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    output = [{"id": f"m{number}", "status": "completed", **item}]
    return {**reply, **choices, "output": output, "usage": usage}


def _completion(line: Json, number: int, model: str) -> Json:
    read, written = line.get("usage", (100, 20))
    message: Json = {"role": "assistant", "content": line.get("text")}
    if "call" in line:
        function = {"name": line["call"], "arguments": json.dumps(line["args"])}
        message["tool_calls"] = [{"id": f"c{number}", "type": "function", "function": function}]
    end = "tool_calls" if "call" in line else "stop"
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    reply = {"id": f"x{number}", "object": "chat.completion", "created": 1, "model": model, "usage": usage}
    return {**reply, "choices": [{"index": 0, "message": message, "finish_reason": end}]}


def came_right(task: int, python: Path, code: str, script: list[Json]) -> bool:
    """Run a program and return whether it came to what the page says."""
    with tempfile.TemporaryDirectory() as folder, Model(script) as model:
        work = Path(folder)
        (work / "program.py").write_text(code)
        (work / "tickets.txt").write_text("one")
        if task == 4:  # its mornings come at once
            (work / "sitecustomize.py").write_text("import time\ntime.sleep = lambda seconds: None\n")
        address = f"http://127.0.0.1:{model.server_port}/v1"
        places = {
            "HOME": folder,
            "PYTHONPATH": folder,
            "OPENAI_BASE_URL": address,
            "OPENAI_API_BASE": address,
        }
        program: Any = {"cwd": work, "env": {**os.environ, **SILENT, **places}, "text": True}
        if task == 5:
            with subprocess.Popen([python, "program.py"], stdout=subprocess.DEVNULL, **program) as first:
                while model.asked < 2 and first.poll() is None:
                    time.sleep(0.05)
                first.kill()
        ran = subprocess.run(
            [python, "program.py"], input="yes, publish it\n", capture_output=True, timeout=300, **program
        )
        files = {file.name: file.read_text() for file in work.glob("*.txt")}
        model.shutdown()
    right: list[bool] = [
        re.search(r"^3$", ran.stdout, re.MULTILINE) is not None,
        ran.stdout.strip().endswith("It was sent on Monday."),
        files.get("article.txt") == "Bees are busy.",
        files.get("reports.txt") == "Nothing burns.\n" * 3,
        ran.stdout.strip().endswith("How they fly!") and model.asked == 4,
    ]
    return right[task - 1]


def main(folder: Path) -> int:
    """Run all programs of the page that are not ours; return how many did not come right."""
    page = (REPOSITORY / "examples/compared/README.md").read_text()
    wrong = 0
    for task, section in enumerate(page.split("\n## ")[1:], 1):
        programs = re.findall(r"^([^\n]+):\n\n```python\n(.*?)```", section, re.MULTILINE | re.DOTALL)
        for framework, code in programs:
            if framework not in PACKAGES:
                continue
            place = folder / framework.replace(" ", "-").lower()
            if not place.exists():
                venv.create(place, with_pip=True)
                install = [place / "bin/pip", "install", "--quiet", *PACKAGES[framework]]
                subprocess.run(install, check=True)
            is_right = came_right(task, place / "bin/python", code, script_of(task, framework))
            wrong += not is_right
            print(
                f"{'ok' if is_right else 'WRONG':<6}{framework:<18} {section.partition(chr(10))[0]}",
                flush=True,
            )
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]).absolute())))
