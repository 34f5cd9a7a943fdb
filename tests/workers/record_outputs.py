"""Record real output of released harnesses against the stand-in server, for test_output_readers.py.

    LEMMING_HARNESSES=DIR python tests/workers/record_outputs.py FOLDER [NAME...]

FOLDER holds the runs and must not be under the system's temporary folder, which Codex refuses for a HOME. The output of
a run is `recorded/NAME-CASE.out`, its exit status and standard error are in `recorded/ends-NAME.json`.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness_programs import FOLDER, make_home, make_variables, run_program
from model_servers import ModelServer, Script

from lemming.capabilities.workers.harnesses.harness_table import build_invocation, load_harness, read_version

RECORDED = Path(__file__).parent / "recorded"
NAMES = ("claude-code", "codex", "pi", "opencode", "gemini")
UNKNOWN_SESSION = "01a2274e-71aa-7120-94d3-1e1b51a21111"
MAX_ERROR_CHARS, MAX_CUT_BYTES = 1500, 4000
WORK: Script = [
    {"say": "I write.", "write": ["a.txt", "one\n"], "usage": [1000, 20, 300, 100]},
    {"run": "echo two > b.txt; false"},
    {"say": "All written, well."},
    {"write": ["c.txt", "three\n"]},
    {"say": "And c."},
]
FAILURES: dict[str, Script] = {
    **{f"http-{status}": [{"fail": [status, "always"]}] for status in (400, 401, 429, 500)},
    "drop": [{"say": "I begin and end early.", "drop": True}],
    "garbage": [{"garbage": True}],
    "refused": [{"call": ["NoSuchTool", {"x": 1}]}, {"write": ["/dev/null/a", "one\n"]}, {"say": "I could not write."}],
}


class Recorder:
    """Records the cases of one harness."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.ends: dict[str, Any] = {"version": read_version(load_harness(name))}

    def keep(self, case: str, output: bytes, errors: bytes, status: int | None) -> None:
        """Write the output with the folder of the runs taken out; no status: the run was cut by its deadline."""
        places = re.compile(rf"{re.escape(str(self.folder))}/[a-z0-9-]+".encode())
        output = places.sub(b"/run", output if status is not None else output[:MAX_CUT_BYTES])
        (RECORDED / f"{self.name}-{case}.out").write_bytes(output)
        text = places.sub(b"/run", errors).replace(bytes(FOLDER.parent), b"/node_modules").decode(errors="replace")
        self.ends[case] = {"exit": status, "errors": text[-MAX_ERROR_CHARS:]}
        print(self.name, case, status, len(output), text[-80:].strip().splitlines()[-1:])

    def run(self, case: str, script: Script, *, folder: str = "", **limits: Any) -> bytes:
        """Run the harness to its end."""
        with ModelServer(script) as server:
            place = self.folder / (folder or case)
            try:
                run = run_program(self.name, "write the files", folder=place, base_url=server.url, **limits)
                output, errors, status = run.stdout, run.stderr, run.returncode
            except subprocess.TimeoutExpired as error:
                output, errors, status = error.stdout or b"", error.stderr or b"", None
        self.keep(case, output, errors, status)
        return output

    def stop(self, case: str = "stop") -> None:
        """Send the stop signal while the second reply hangs."""
        harness = load_harness(self.name)
        with ModelServer([{"write": ["a.txt", "one\n"]}, {"say": "I begin.", "hang": True}]) as server:
            home = make_home(self.folder / case / "home", harness, "stand-in", server.url)
            tree = self.folder / case / "tree"
            subprocess.run(["git", "init", "-q", str(tree)], check=True)
            process = subprocess.Popen(
                build_invocation(harness, model="stand-in", base_url=server.url).command, cwd=tree, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=make_variables(harness, home, "stand-in", server.url),
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(b"write the files")
            process.stdin.close()
            process.stdin = None
            while sum(bool(request.tools) for request in server.requests) < 2:
                time.sleep(0.05)
            time.sleep(1)
            process.send_signal(getattr(signal, f"SIG{harness.stop_signal}"))
            try:
                output, errors = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
        self.keep(case, output, errors, process.returncode)

    def record(self) -> None:
        """Record all cases."""
        output = self.run("success", WORK)
        first = json.loads(output.splitlines()[0])
        session = next(first[key] for key in ("session_id", "thread_id", "sessionID", "id") if key in first)
        self.run("resume", WORK, folder="success", session=session)
        self.run("no-session", WORK, folder="success", session=UNKNOWN_SESSION)
        for case, script in FAILURES.items():
            self.run(case, script, timeout_s=60)
        self.stop()
        if self.name == "claude-code":
            dear: Script = [{"write": ["a.txt", "one\n"], "usage": [100_000, 20_000]}, {"say": "Written."}]
            self.run("budget", dear, max_cost_usd=0.1, model="claude-sonnet-4-5")
            self.run("turns", WORK, max_turns=1)
        (RECORDED / f"ends-{self.name}.json").write_text(json.dumps(self.ends, indent=2) + "\n")


def main() -> None:
    """Record the harnesses that are named, or all of them."""
    folder, *names = sys.argv[1:]
    RECORDED.mkdir(exist_ok=True)
    for name in names or NAMES:
        Recorder(name, Path(folder).resolve()).record()


if __name__ == "__main__":
    main()
