"""A worker's turn: its patch is recorded, decided about like any call, and merged once."""

from __future__ import annotations

import json
from pathlib import Path

from worker_org import git, make_worker_org

from lemming.engine import run_once

EDIT = "cat > prompt.tmp; rm prompt.tmp; echo two >> src/a.txt; echo new > b.txt; echo I changed two files."


def outbox(base: Path, name: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((base / f"agents/{name}/outbox").glob("*.json"))]


def test_a_patch_is_merged_into_a_branch_of_its_own(tmp_path: Path) -> None:
    base, site = make_worker_org(tmp_path, {"coder": EDIT})
    before = git(site, "rev-parse", "main")
    report = run_once(base)
    print(report)
    assert git(site, "rev-parse", "main") == before
    assert git(site, "show", "lemming/coder:src/a.txt") == "one\ntwo"
    assert git(site, "show", "lemming/coder:b.txt") == "new"
    assert git(site, "status", "--porcelain") == ""
    commit = git(site, "show", "-s", "--format=%an%n%B", "lemming/coder")
    assert commit.startswith("coder\nI changed two files.")
    assert "LeMMing-Agent: coder" in commit
    entry = outbox(base, "coder")[-1]
    assert entry["payload"]["text"] == "I changed two files."
    assert entry["payload"]["commit"] == git(site, "rev-parse", "lemming/coder")
