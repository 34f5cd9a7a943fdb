"""Runs of scripted harnesses: a shell whose script is the prompt, with a client for its model server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

from lemming.capabilities.workers.attempts import Attempt, WorkerJob
from lemming.capabilities.workers.harnesses.harness_types import Harness, HarnessRun, ModelApi

KEY = "sk-the-real-key-0123456789"
MODEL = "claude-sonnet-4-5"
REQUEST = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "t"}]}

# Sent from inside a run: prints the status and the body of the answer.
CLIENT = """
import json, os, sys, urllib.error, urllib.request
headers = {"content-type": "application/json", "x-api-key": os.environ["MODEL_KEY"]}
body = json.loads(sys.argv[1])
request = urllib.request.Request(os.environ["MODEL_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


PRICES = {"input": 0.001, "output": 0.001}
"""A dollar for a thousand tokens."""


def make_run(folder: Path, prompt: str = "", *, api: ModelApi = "none", **changes: Any) -> HarnessRun:
    """Return a run of the scripted harness, with `folder` as its attempt. `changes`: of the run, or of its job."""
    for name in ("clone", "home"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "clone" / "client.py").write_text(CLIENT)
    harness = Harness(
        name="scripted", program=("/bin/sh",), arguments=("-s",), api=api, key_variable="MODEL_KEY",
        environment={"MODEL_URL": "{base_url}"}, install="install a shell",
    )  # fmt: skip
    run = HarnessRun(
        harness=harness, job=WorkerJob(key="1-a-0", base="", agent="a", model=MODEL), prompt=prompt,
        attempt=Attempt("1-a-0", folder), key=KEY, deadline_s=PATIENCE_S, silence_s=PATIENCE_S,
    )  # fmt: skip
    return change_run(run, **changes)


def change_run(run: HarnessRun, **changes: Any) -> HarnessRun:
    """Return a run with changed fields of its own or of its job."""
    names = WorkerJob.__dataclass_fields__.keys() - HarnessRun.__dataclass_fields__.keys()
    of_job = {name: changes.pop(name) for name in names & changes.keys()}
    return replace(run, job=replace(run.job, **of_job), **changes)
