"""What is refused about a worker: rewritten calls, secrets, limits that cannot be kept, and mistakes of a resume."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from merge_org import find_waiting_id, make_asking_org, read_site
from terminal import Lemming
from worker_org import ask_worker, git, make_repository, make_worker_org, outbox

from lemming.capabilities.workers.attempts import state_folder
from lemming.engine import run_once
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.redaction import secrets
from lemming.obligations.write_decisions import decide

EDIT = "cat > /dev/null; echo new > b.txt; echo done"


@pytest.fixture
def known_secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A secret of the environment."""
    value = "a-very-secret-value"
    monkeypatch.setenv("SITE_API_KEY", value)
    secrets.refresh()
    yield value
    monkeypatch.undo()
    secrets.refresh()


def read_answer(base: Path) -> Any:
    return outbox(base, "coder")[-1]["payload"]


def list_branches(site: Path) -> str:
    return git(site, "for-each-ref", "--format=%(refname:short)")


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_gate_that_rewrites_the_words_of_a_patch_stops_the_merge(tmp_path: Path) -> None:
    gate = {"at": "call", "tool": "merge", "redact": ["hunter2"], "then": "rewrite"}
    base, site = make_asking_org(tmp_path, EDIT.replace("new", "hunter2"), gates=[gate])
    run_once(base)
    assert "diff must be that of the patch" in read_answer(base)["text"]
    assert list_branches(site) == "main"


def test_a_gate_looks_at_the_whole_of_a_long_patch(tmp_path: Path) -> None:
    gate = {"at": "call", "tool": "merge", "deny": ["EVIL"], "then": "block", "because": "evil"}
    base, site = make_asking_org(tmp_path, f"seq 9000 > a.txt; {EDIT}; echo EVIL > z.txt", gates=[gate])
    run_once(base)
    assert "evil" in read_answer(base)["text"]
    assert list_branches(site) == "main"


def test_a_merge_whose_output_a_gate_withholds_is_answered_with_its_checks(tmp_path: Path) -> None:
    gate = {"at": "result", "tool": "merge", "then": "block", "because": "not shown"}
    checks = {"checks": [{"command": ["true"]}]}
    base, site = make_worker_org(tmp_path, {"coder": EDIT}, workspace=checks, org={"gates": [gate]})
    run_once(base)
    assert sorted(read_answer(base)) == ["checks", "text"]
    assert git(site, "show", "lemming/coder:b.txt") == "new"


def test_a_conflict_in_many_large_files_is_told_to_the_harness(tmp_path: Path) -> None:
    make_repository(tmp_path / "site", {f"f{number}.txt": f"old {'x' * 70}\n" * 300 for number in range(8)})
    script = "tee {folder}/prompt > /dev/null; sed -i s/^old/{name}/ f*.txt; echo done"
    names = ("first", "second")
    scripts = {name: script.format(folder=tmp_path, name=name) for name in names}
    base, _ = make_worker_org(tmp_path, scripts, branch="lemming/all")
    run_once(base)
    assert "f7.txt, on the branch now" in (tmp_path / "prompt").read_text()


@pytest.mark.parametrize("filler", ["", "seq 9000 > a.txt;"])
def test_a_patch_that_holds_a_secret_is_neither_recorded_nor_merged(
    tmp_path: Path, known_secret: str, filler: str
) -> None:
    script = f"cat > /dev/null; {filler} echo {known_secret[::-1]} | rev > b.txt; echo done"
    base, site = make_asking_org(tmp_path, script)
    run_once(base)
    assert "holds the secret SITE_API_KEY" in read_answer(base)["text"]
    assert list_branches(site) == "main"
    assert not [path for path in base.rglob("*") if path.is_file() and known_secret.encode() in path.read_bytes()]


def test_text_that_looks_like_a_removed_secret_is_merged_as_it_is(tmp_path: Path) -> None:
    base, site = make_asking_org(tmp_path, EDIT.replace("new", "'[redacted TOKEN]'"), gates=[])
    run_once(base)
    assert git(site, "show", "lemming/coder:b.txt") == "[redacted TOKEN]"


def test_an_approved_merge_that_cannot_be_made_answers_the_request_without_another_run(base: Path) -> None:
    decide(base, find_waiting_id(base), "approve")
    next((base / "logs/patches").iterdir()).unlink()
    run_once(base)
    assert "must be in logs/patches" in read_answer(base)["text"]


def test_a_merge_into_a_checked_out_branch_cannot_be_approved_and_its_approval_waits(base: Path) -> None:
    item = find_waiting_id(base)
    read_site(base, "checkout", "-q", "-b", "lemming/coder")
    with pytest.raises(LemmingError, match="must not be checked out"):
        decide(base, item, "approve")
    read_site(base, "checkout", "-q", "main")
    decide(base, item, "approve")
    read_site(base, "checkout", "-q", "lemming/coder")
    assert run_once(base).turns[0].status == "failed"
    read_site(base, "checkout", "-q", "main")
    run_once(base)
    assert read_answer(base)["commit"] == read_site(base, "rev-parse", "lemming/coder")


def test_a_file_that_is_too_large_for_the_patch_is_named(tmp_path: Path) -> None:
    base, _ = make_worker_org(tmp_path, {"coder": f"{EDIT}; seq 9 > c.txt"}, workspace={"max_file_bytes": 10})
    assert "not in the patch: c.txt: file must have at most 10 bytes" in str(run_once(base).turns[0].remarks)


def test_a_worker_whose_patch_is_denied_is_told_that_its_folder_is_new(tmp_path: Path) -> None:
    base, _ = make_asking_org(tmp_path, f"tee {tmp_path}/prompt > /dev/null; echo new > b.txt; echo done")
    run_once(base)
    decide(base, find_waiting_id(base), "deny", text="call it c.txt")
    run_once(base)
    prompt = (tmp_path / "prompt").read_text()
    assert "call it c.txt" in prompt
    assert "without the changes of your earlier answers" in prompt


def test_a_check_that_cannot_be_run_is_no_work_for_the_harness(tmp_path: Path, state_home: Path) -> None:
    script = f"{EDIT}; echo run >> {tmp_path}/runs"
    base, _ = make_worker_org(tmp_path, {"coder": script}, workspace={"checks": [{"command": ["true"]}]})
    ask_worker(base, "coder")
    (state_home / "lemming/workers").mkdir(parents=True)
    state_folder(base).mkdir()
    (state_folder(base) / "checks").write_text("no folder")
    run_once(base)
    assert "true cannot be run: check_patch" in read_answer(base)["text"]
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.long
def test_a_stop_during_a_check_is_no_failed_check(tmp_path: Path) -> None:
    checks = [{"command": ["/bin/sh", "-c", f"echo run >> {tmp_path}/checks; sleep 2"]}]
    script = f"{EDIT}; echo run >> {tmp_path}/runs"
    base, _ = make_worker_org(tmp_path, {"coder": script}, workspace={"checks": checks}, wake="addressed")
    ask_worker(base, "coder")
    run = [sys.executable, "-m", "lemming", "-C", str(base)]
    subprocess.run([*run, "trust", "--yes"], check=True, capture_output=True)
    process = subprocess.Popen([*run, "run-once"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "checks").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.wait()
    run_once(base)
    assert [receipt["status"] for receipt in read_answer(base)["checks"]] == [0]
    assert (tmp_path / "runs").read_text() == "run\n"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"branch": "main"}, "branch must not be checked out"),
    ({"branch": "main/x"}, "cannot exist beside 'main'"),
    ({"branch": "HEAD"}, "branch must be a valid name"),
    ({"branch": "a..b"}, "branch must be a valid name"),
    ({"base": "nope"}, "base must be a branch"),
    ({"repository": "~/site"}, "write the whole path"),
    ({"paths": ["/src/**"]}, "write src/**"),
    ({"readable": ["docs"]}, "must be absolute folders"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_a_mistake_in_a_workspace_is_told_by_validate(
    base: Path, lemming: Lemming, change: dict[str, Any], message: str
) -> None:
    resume = base / "agents/coder/resume.json"
    change_json(resume, workspace=json.loads(resume.read_text())["workspace"] | change)
    ran = lemming("validate")
    assert ran.status == 3
    assert message in " ".join(ran.err.split())


def test_a_harness_without_a_workspace_is_told_by_validate(base: Path, lemming: Lemming) -> None:
    resume = base / "agents/coder/resume.json"
    change_json(resume, workspace=None)
    assert "must have a workspace" in lemming("validate").err


@pytest.mark.parametrize("option", [{"max_cost_usd": 1}, {"deadline_s": -5}, {"max_turns": -1}, {"maxcost": 1}])
def test_a_limit_that_cannot_be_kept_is_told_by_validate(base: Path, lemming: Lemming, option: dict[str, Any]) -> None:
    models = base / "config/models.json"
    entry = json.loads(models.read_text())["model_coder"]
    change_json(models, model_coder={**entry, "options": entry["options"] | option})
    output = lemming("validate").err
    assert next(iter(option)) in output
    assert "1 error" in output


def test_a_limit_in_dollars_lets_a_program_run_that_costs_nothing(tmp_path: Path) -> None:
    gate = {"at": "spend", "dollars": 1, "per": "organisation", "then": "block"}
    base, site = make_worker_org(tmp_path, {"coder": EDIT}, org={"gates": [gate]})
    models = base / "config/models.json"
    entry = json.loads(models.read_text())["model_coder"]
    prices = {"usd_per_million_input_tokens": 0, "usd_per_million_output_tokens": 0}
    change_json(models, model_coder={**entry, **prices})
    ask_worker(base, "coder")
    run_once(base)
    assert "lemming/coder" in list_branches(site)


def test_a_patch_waits_with_the_request_that_it_is_for(base: Path, lemming: Lemming) -> None:
    run_once(base)
    assert "of ann:\n  | Change the site, please.\n" in lemming("waiting", find_waiting_id(base)).out
