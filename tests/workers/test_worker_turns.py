"""A worker's turn: its patch is recorded, decided about like any call, and merged once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from worker_org import ask_worker, git, make_worker_org, outbox

from lemming.engine import run_once

EDIT = "cat > prompt.tmp; rm prompt.tmp; echo two >> src/a.txt; echo new > b.txt; echo I changed two files."


def test_a_patch_is_merged_into_a_branch_of_its_own(tmp_path: Path) -> None:
    base, site = make_worker_org(tmp_path, {"coder": EDIT})
    before = git(site, "rev-parse", "main")
    run_once(base)
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


def test_a_request_is_answered_once_the_patch_is_merged_and_costs_nothing_afterwards(tmp_path: Path) -> None:
    base, site = make_worker_org(tmp_path, {"coder": EDIT}, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    answer = outbox(base, "coder")[-1]
    assert (answer["kind"], answer["payload"]["commit"]) == ("response", git(site, "rev-parse", "lemming/coder"))
    report = run_once(base)
    assert {turn.status for turn in report.turns} == {"skipped"}


def test_a_run_without_changes_merges_nothing(tmp_path: Path) -> None:
    base, site = make_worker_org(tmp_path, {"coder": "cat >/dev/null; echo Nothing to do."})
    run_once(base)
    assert git(site, "for-each-ref", "refs/heads/lemming") == ""
    assert outbox(base, "coder")[-1]["payload"] == {"text": "Nothing to do."}


def test_a_harness_that_fails_is_not_run_again_and_changes_nothing(tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; echo x >> src/a.txt; echo broken; exit 3"
    base, site = make_worker_org(tmp_path, {"coder": script}, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    answer = outbox(base, "coder")[-1]["payload"]
    assert answer["status"] == "failed"
    assert "command" in answer["text"]
    run_once(base)
    assert (tmp_path / "runs").read_text().count("run") == 1
    assert git(site, "for-each-ref", "refs/heads/lemming") == ""


def test_a_patch_may_change_only_the_paths_of_the_workspace(tmp_path: Path) -> None:
    base, site = make_worker_org(tmp_path, {"coder": EDIT}, workspace={"paths": ["src/*"]}, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    assert "may not change b.txt" in outbox(base, "coder")[-1]["payload"]["text"]
    assert git(site, "for-each-ref", "refs/heads/lemming") == ""


@pytest.mark.long
def test_a_check_that_fails_goes_back_to_the_harness_and_its_receipts_stand_in_the_answer(tmp_path: Path) -> None:
    script = (
        "cat >/dev/null; test -e src/fixed && echo good > src/state || echo bad > src/state; touch src/fixed; echo done"
    )
    checks = [{"command": ["grep", "-q", "good", "src/state"]}, {"command": ["sh", "-c", "cat src/state"]}]
    base, site = make_worker_org(tmp_path, {"coder": script}, workspace={"checks": checks}, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    payload = outbox(base, "coder")[-1]["payload"]
    assert [receipt["status"] for receipt in payload["checks"]] == [0, 0]
    assert payload["checks"][1]["tail"].strip() == "good"
    assert git(site, "show", "lemming/coder:src/state") == "good"
    assert git(site, "rev-list", "--count", "main..lemming/coder") == "1"


@pytest.mark.long
def test_a_check_that_never_passes_keeps_the_patch_from_the_branch(tmp_path: Path) -> None:
    workspace = {"checks": [{"command": ["false"]}], "max_corrections": 1}
    base, site = make_worker_org(tmp_path, {"coder": EDIT}, workspace=workspace, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    assert "false exited with 1" in outbox(base, "coder")[-1]["payload"]["text"]
    assert git(site, "for-each-ref", "refs/heads/lemming") == ""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_in_the_sandbox_a_harness_sees_its_clone_and_nothing_of_the_person(tmp_path: Path) -> None:
    script = f"cat >/dev/null; ls {tmp_path}/org > seen.txt 2>&1; echo x > {tmp_path}/site/hacked; git log > log.txt; echo done"
    base, site = make_worker_org(tmp_path, {"coder": script}, workspace={"sandbox": "required"}, wake="addressed")
    ask_worker(base, "coder")
    run_once(base)
    assert "merged" not in outbox(base, "coder")[-1]["payload"].get("status", "")
    assert not (site / "hacked").exists()
    assert "No such file" in git(site, "show", "lemming/coder:seen.txt")
    assert "begin" in git(site, "show", "lemming/coder:log.txt")


@pytest.mark.long
def test_a_goal_is_checked_on_the_branch_after_the_merge_and_its_words_go_back_to_the_harness(tmp_path: Path) -> None:
    script = "grep -q 'exit status 1' && echo good > src/state || echo bad > src/state; echo done"
    base, site = make_worker_org(tmp_path, {"coder": script}, wake="addressed")
    ask_worker(base, "coder", until={"checks": [["grep", "-q", "good", "src/state"]]})
    run_once(base)
    assert [entry for entry in outbox(base, "coder") if entry["kind"] == "response"] == []
    assert git(site, "show", "lemming/coder:src/state") == "bad"
    run_once(base)
    receipts = outbox(base, "coder")[-1]["payload"]["until"]
    assert (receipts["turns"], receipts["reached"], receipts["checks"][0]["status"]) == (2, True, 0)
    assert git(site, "show", "lemming/coder:src/state") == "good"


FORGETFUL = """#!/bin/sh
case "$*" in
*--version*) echo 1 && exit ;;
*--resume*) echo '{"type": "result", "is_error": true, "result": "No conversation found", "session_id": "s"}' && exit 1 ;;
esac
cat > /dev/null
echo '{"type": "system", "subtype": "init", "session_id": "s"}'
if test -e state; then echo good >> state; else echo bad > state; fi
echo '{"type": "result", "subtype": "success", "is_error": false, "result": "done", "session_id": "s"}'
"""


def test_a_session_that_cannot_be_resumed_is_begun_again_with_the_changes_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-the-test")
    (tmp_path / "forgetful").write_text(FORGETFUL)
    (tmp_path / "forgetful").chmod(0o755)
    checks = {"checks": [{"command": ["grep", "-q", "good", "state"]}]}
    base, site = make_worker_org(tmp_path, {"coder": ""}, workspace=checks)
    models = json.loads((base / "config/models.json").read_text())
    options = {"command": [f"{tmp_path}/forgetful"]}
    models["model_coder"] = {"provider": "claude-code", "model": "claude-sonnet-4-5", "options": options}
    (base / "config/models.json").write_text(json.dumps(models))
    run_once(base)
    assert git(site, "show", "lemming/coder:state") == "bad\ngood"
