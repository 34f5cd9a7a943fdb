"""An organisation whose worker `coder` asks `ann` for the approval of a merge, and its repository `site`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worker_org import ask_worker, git, make_worker_org

from lemming.obligations.waiting_items import list_person_inbox

EDIT = "cat > /dev/null; echo two >> src/a.txt; echo new > b.txt; mkdir .claude; echo {} > .claude/settings.json; "
EDIT += "echo I changed three files."
ASK = {"at": "call", "tool": "merge", "then": "ask", "because": "a person reads each patch"}


def make_asking_org(folder: Path, script: str = EDIT, gates: list[dict[str, Any]] | None = None) -> tuple[Path, Path]:
    """Make an organisation with a worker, a person and a request of the person. No tick has run."""
    org = {"gates": [ASK] if gates is None else gates}
    base, site = make_worker_org(folder, {"coder": script}, org=org)
    ask_worker(base, "coder", "Change the site, please.")
    return base, site


def find_waiting_id(base: Path) -> str:
    """Return the id of the request that waits for ann."""
    return list_person_inbox(base)[0].id


def read_site(base: Path, *arguments: str) -> str:
    """Run git in the repository beside an organisation, and return its output."""
    return git(base.parent / "site", *arguments)
