"""The package without the folder of a capability, and organisations that use one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from package import PACKAGE

from lemming.kernel.plugins.capability_table import LISTED
from lemming.testing import make_org, resume, say

TESTS = PACKAGE.parent / "tests"
CAPABILITIES = PACKAGE / "capabilities"
WRITES = {"tools": ["file_write"]}
NAMES_IT: dict[str, list[dict[str, Any]]] = {
    "answers": [{"output": {"schema": {"properties": {"price": {"type": "number"}}}}}],
    "approvals": [
        {"gates": [{"at": "call", "tool": "file_write", "then": "ask"}], "permissions": WRITES},
        {"gates": [{"at": "out", "then": "ask"}]},
        {"gates": [{"at": "spend", "credits": 1, "per": "turn", "then": "ask"}]},
        {"turn": {"max_approvals": 2}},
    ],
    "attachments": [{"permissions": {"tools": ["attach"]}}, {"model": {"key": "eye"}}],
    "embedded": [{"model": {"key": "default"}}],
    "gates": [
        {"gates": [{"at": "out", "deny": ["secret"], "then": "block"}]},
        {"gates": [{"at": "spend", "calls": 5, "per": "turn", "then": "block"}]},
        {"gates": []},
    ],
    "goals": [],  # a request names it
    "judges": [
        {"verify": {"by": "bob"}},
        {"team": {"ask": [{"agent": "bob", "verify": {"by": "bob"}}]}},
        {"gates": [{"at": "out", "by": "bob", "then": "block"}]},
    ],
    "money": [{"model": {"key": "dear"}}, {"model": {"key": "scripted", "fallback": ["dear"]}}],
    "mcp": [{"permissions": {"tools": ["mcp.files.*"]}}, {"permissions": {"tools": ["mcp.files.read"]}}],
    "calendars": [{"model": {"key": "clock"}}],
    "batches": [{"model": {"key": "batchy"}}],
    "cron": [{"schedule": {"cron": "@hourly", "timezone": "UTC"}}],
    "channels": [{"model": {"key": "box"}}],
    "plans": [{"model": {"key": "plan"}}],
    "programs": [{"model": {"key": "program"}}],
    "requests": [{"team": {"ask": ["bob"]}}, {"turn": {"take": "one"}}],
    "skills": [{"skills": ["*"]}, {"guides": True}],
    "strategies": [{"turn": {"strategy": "reflexion"}}, {"turn": {"options": {"rounds": 2}}}],
    "windows": [{"memory": {"max_tokens": 100}}],
    "workers": [{"workspace": {"repository": "../site"}}],
}
"""What a resume says that uses a capability."""
NAMED_BY_ALL: dict[str, dict[str, Any]] = {
    "cluster": {"executor": "dask", "executor_address": "tcp://127.0.0.1:8786"},
    "gates": {"gates": [{"at": "call", "class": "execute", "then": "block"}]},
    "toolbox": {"shell": {"timeout_s": 5}},
    "trust": {"trust": {}},
}
"""What `config/org.json` says that uses one."""

PEOPLE = {"human": {"provider": "human"}}
LINES: dict[str, dict[str, Any]] = {
    "box": {"provider": "folder", "options": {"path": "./shared/box", "to": "bob"}},
    "batchy": {"provider": "scripted", "options": {"file": "script.json"}, "batch_deadline_s": 60},
    "dear": {"provider": "scripted", "options": {"file": "script.json"}, "usd_per_million_input_tokens": 1},
    "eye": {"provider": "scripted", "options": {"file": "script.json"}, "images": True},
    "program": {"provider": "cli", "options": {"command": ["cat"], "effects": "none"}},
}
"""Lines of `config/models.json` for one who uses a capability."""
PROGRAMS = {name: {"provider": name, "prompt": "values"} for name in ("clock", "plan")}


def without(name: str, place: Path) -> Path:
    """Return a folder with the package in it, all of it but the folder of a capability; "": but of any."""
    inner = Path("lemming", CAPABILITIES.name)
    (place / inner).mkdir(parents=True)
    gone = {LISTED[name].package.rpartition(".")[2]} if name else {it.name for it in folders()}
    left_out = {"__pycache__", CAPABILITIES.name, *gone}
    for folder, here in ((inner.parent, PACKAGE), (inner, CAPABILITIES)):
        for path in here.iterdir():
            if path.name not in left_out:
                (place / folder / path.name).symlink_to(path)
    return place


def folders() -> list[Path]:
    """Return the folders of all capabilities, but for the tools and models that the guide names."""
    stay = {"__pycache__", "hosted_models", "scripted_models", "toolbox"}
    return [it for it in CAPABILITIES.iterdir() if it.is_dir() and it.name not in stay]


def python(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of this folder."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def plain(base: Path, **ada: Any) -> Path:
    """Return an organisation of two, of whom one may use a capability."""
    script = [{"reply": say("hello", memory_updates=[{"key": "seen", "value": 1}])}]
    named = str(ada.get("model", ""))
    models = PROGRAMS | {key: line for key, line in LINES.items() if f"'{key}'" in named}
    return make_org(base, resume("ada", **ada), resume("bob"), models=models, script=script)
