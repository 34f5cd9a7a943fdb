"""Released harnesses for tests: found in PATH, or in the folder of npm packages that LEMMING_HARNESSES names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE_S

from lemming.capabilities.workers.harnesses.harness_table import (
    build_invocation,
    load_harness,
)
from lemming.capabilities.workers.harnesses.harness_types import Harness

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lemming-harnesses"
FOLDER = Path(os.environ.get("LEMMING_HARNESSES") or CACHE) / "node_modules/.bin"
SEARCH_PATH = f"{FOLDER}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def require_program(name: str) -> str:
    """Return the path of an installed program, or skip the test."""
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None or shutil.which("node") is None:
        pytest.skip(f"{name} is not installed: make harnesses")
    return path


def make_home(folder: Path, harness: Harness, model: str, base_url: str) -> Path:
    """Return a HOME with the files that a harness needs. Codex refuses one under the system's temporary folder."""
    for path, text in build_invocation(harness, model=model, base_url=base_url).home_files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_variables(harness: Harness, home: Path, model: str, base_url: str) -> dict[str, str]:
    """Return the variables of a run, with a key that no server checks."""
    variables = build_invocation(harness, model=model, base_url=base_url).environment
    return {**variables, "PATH": SEARCH_PATH, "HOME": str(home), "LC_ALL": "C.UTF-8", harness.key_variable: "stand-in"}


def run_program(
    name: str, prompt: str, *, folder: Path, base_url: str, model: str = "stand-in", session: str = "",
    max_cost_usd: float | None = None, max_turns: int | None = None, timeout_s: float = PATIENCE_S,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """Run a harness once, as its file says, with HOME and work tree in a folder. A second run uses both again."""
    harness = load_harness(name)
    require_program(harness.program[0])
    home = make_home(folder / "home", harness, model, base_url)
    tree = folder / "tree"
    if not tree.exists():
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
    limits = {"max_cost_usd": max_cost_usd, "max_turns": max_turns}
    command = build_invocation(harness, model=model, session=session, base_url=base_url, **limits).command
    variables = make_variables(harness, home, model, base_url)
    return subprocess.run(
        command, input=prompt.encode(), cwd=tree, env=variables, capture_output=True, timeout=timeout_s, check=False
    )
