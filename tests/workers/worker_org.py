"""An organisation with workers, the repository that they work on, and a scripted harness."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lemming.testing import make_org, resume

AS_AUTHOR = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
PEOPLE = {"human": {"provider": "human"}}


def git(repository: Path, *arguments: str) -> str:
    """Run git as the user of a repository would, and return its output."""
    command = ["git", "-C", str(repository), *AS_AUTHOR, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Make a repository with one commit on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in (files or {"README": "a site\n", "src/a.txt": "one\n"}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "begin")
    return folder


def shell_harness(script: str, **options: Any) -> dict[str, Any]:
    """Return a line of `config/models.json` with a shell script as the harness; the prompt is its input."""
    return {"provider": "harness", "options": {"command": ["/bin/sh", "-c", script], **options}}


def outbox(base: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries of an agent, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((base / f"agents/{name}/outbox").glob("*.json"))]


PERSON = resume("ann", model={"key": "human"}, permissions={"read_outboxes": ["*"]})


def ask_worker(base: Path, target: str, text: str = "Change the site.", **payload: Any) -> None:
    """Write a person's request to a worker, as `lemming send` does before the first tick."""
    entry = {
        "id": f"{target:0<12.12}",
        "tick": 1,
        "agent": "ann",
        "kind": "request",
        "payload": {"text": text, "target": target, **payload},
        "tags": [],
        "created_at": "2026-01-01T00:00:00.000Z",
    }
    folder = base / "agents/ann/outbox"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"00000001_{entry['id']}.json").write_text(json.dumps(entry))


def make_worker_org(
    tmp_path: Path,
    scripts: dict[str, str],
    *,
    branch: str = "",
    workspace: dict[str, Any] | None = None,
    org: dict[str, Any] | None = None,
    resumes: Iterable[dict[str, Any]] = (),
    options: dict[str, Any] | None = None,
    wake: str = "always",
    **more: Any,
) -> tuple[Path, Path]:
    """Make an organisation with a worker for each script, by name, and the repository `site` beside it."""
    site = tmp_path / "site"
    if not site.exists():
        make_repository(site)
    settings = {
        "repository": "../site",
        "sandbox": "none",
        **({"branch": branch} if branch else {}),
        **(workspace or {}),
    }
    workers = [
        resume(
            name,
            model={"key": f"model_{name}"},
            workspace=settings,
            schedule={"wake": wake},
            permissions={"read_outboxes": ["ann"]},
            **more,
        )
        for name in scripts
    ]
    models = {f"model_{name}": shell_harness(script, **(options or {})) for name, script in scripts.items()} | PEOPLE
    return make_org(tmp_path / "org", *workers, PERSON, *resumes, models=models, org=org), site
