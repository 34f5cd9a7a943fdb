"""The example of a capability from outside, installed in a folder, and an organisation that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from forked import lemming_in, python_in
from package import PACKAGE

from lemming.testing import make_org, resume, say

EXAMPLE = PACKAGE.parent / "examples/entry-quota"


def install(site: Path) -> Path:
    """Put into a folder what an installer puts there: the package, and what is said of it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "src", site)
    facts = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    said = f"Metadata-Version: 2.3\nName: {project['name']}\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(said)
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return site


def python(code: str, *words: str, sites: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python with what is installed in these folders, and nothing else besides the engine."""
    return python_in(code, *words, **_with(sites))


def lemming(base: Path, *words: str, sites: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Type a command about an organisation."""
    return lemming_in("-C", str(base), *words, **_with(sites))


def _with(sites: tuple[Path, ...]) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, [*sites, PACKAGE.parent])), "NO_COLOR": "1"}


def three_entries(text: str = "one") -> dict[str, Any]:
    """Return a reply with three entries."""
    replies = [say(f"{text} {number}" if number else text) for number in range(3)]
    return {**replies[0], "outbox_entries": [reply["outbox_entries"][0] for reply in replies]}


def writers(base: Path, *names: str, settings: Any = None, **own: Any) -> Path:
    """Return an organisation of agents who write three entries a turn, with a quota of four for all."""
    blocks = {"quota": {"per_day": 4}} if settings is None else settings
    agents = [resume(name, **({"capabilities": own[name]} if name in own else {})) for name in names]
    return make_org(base, *agents, org={"capabilities": blocks}, script=[{"reply": three_entries()}])


def written(base: Path, name: str = "ada") -> int:
    """Return how many entries an agent has written."""
    return len([*base.glob(f"agents/{name}/outbox/*.json")])
