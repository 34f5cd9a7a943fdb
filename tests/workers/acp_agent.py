"""A small agent that speaks ACP, standard library only: `python acp_agent.py SCRIPT.json`.

The script is an object: `updates` are sent as notifications, `history` those that loading a session repeats, `ask` is the
tool call of a permission question with `options`, `calls` are methods called on the client, `stop` is the stop reason,
`error` a JSON-RPC error instead of it, `die` ends the process, `garbage` is printed before the first answer, `at_end` is a
file that is written once the input has ended. The answers of the client and what was asked of the agent are written to
`SCRIPT.json.log`, one JSON a line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    path = Path(sys.argv[1])
    script: dict[str, Any] = json.loads(path.read_text())
    log = path.with_suffix(".json.log").open("a", encoding="utf-8")

    def send(**message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def note(message: dict[str, Any]) -> None:
        log.write(json.dumps(message) + "\n")
        log.flush()

    def call(method: str, parameters: dict[str, Any]) -> None:
        send(id=f"{method}-call", method=method, params=parameters)
        note(json.loads(sys.stdin.readline()))

    def update(values: list[dict[str, Any]]) -> None:
        for value in values:
            send(method="session/update", params={"sessionId": "s1", "update": value})

    if "garbage" in script:
        print(script["garbage"], flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        note(message)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            send(
                id=number, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": script.get("load", True)}}
            )
        elif method == "session/new":
            send(id=number, result={"sessionId": "s1"})
        elif method == "session/load":
            if "history" not in script:
                send(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": "not found"}})
                continue
            update(script["history"])
            send(id=number, result={})
        elif method == "session/prompt":
            update(script.get("updates", []))
            for name, parameters in script.get("calls", []):
                call(name, {"sessionId": "s1", **parameters})
            if "ask" in script:
                call(
                    "session/request_permission",
                    {"sessionId": "s1", "toolCall": script["ask"], "options": script["options"]},
                )
            if "die" in script:
                sys.exit(3)
            if "error" in script:
                send(id=number, error=script["error"])
            else:
                send(id=number, result={"stopReason": script.get("stop", "end_turn")})
    if "at_end" in script:
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)  # it takes its time
        Path(script["at_end"]).write_text("saved")


if __name__ == "__main__":
    main()
