"""A waiting merge as persons see and decide it: on one line, as a diff by file, edited, denied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from merge_org import find_waiting_id, make_asking_org, read_site
from terminal import Lemming

from lemming.commands.waiting import format_tree
from lemming.engine import run_once
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.pending_actions import CallPatch, PatchEdit, find_call_review
from lemming.obligations.waiting_items import list_person_inbox
from lemming.obligations.write_decisions import decide
from lemming.queries.views.waiting_view import build_waiting_view

ONE_LINE = "merge into lemming/coder: 3 files, +3 -0, look closely at .claude/settings.json: I changed three files."


def get_args(base: Path) -> dict[str, Any]:
    call = list_person_inbox(base)[0].call
    assert call
    return dict(call["args"])


def load_call_patch(base: Path, args: dict[str, Any]) -> CallPatch:
    review = find_call_review("merge")
    assert review
    return review.load_patch(Organisation(base), args)


def load_patch_text(base: Path) -> str:
    return (base / f"logs/patches/{get_args(base)['patch']}.patch").read_text()


def test_a_waiting_merge_reads_as_a_sentence_on_every_screen(base: Path, lemming: Lemming) -> None:
    [item] = list_person_inbox(base)
    assert ONE_LINE in item.summary_line
    assert '"tree"' not in item.summary_line
    assert f"wants to {ONE_LINE}" == build_waiting_view(base)["items"][0]["wish"]
    assert ONE_LINE in lemming("outbox", "coder").out


def test_waiting_shows_the_flags_the_tree_and_the_whole_diff(base: Path, lemming: Lemming) -> None:
    ran = lemming("waiting", find_waiting_id(base))
    assert ran.status == 1
    lines = ran.out.splitlines()
    assert lines.index("look closely  .claude/settings.json: settings of a harness") < lines.index("3 files, +3 -0")
    assert "asker  coder" in lines
    assert lines[lines.index("3 files, +3 -0") + 1 :][:5] == [
        "  | .claude/", "  |   settings.json  +1 -0, new file", "  | b.txt  +1 -0, new file", "  | src/", "  |   a.txt  +1 -0",
    ]  # fmt: skip
    assert lines[lines.index("src/a.txt  +1 -0") :][:4] == [
        "src/a.txt  +1 -0",
        "  | @@ -1 +1,2 @@",
        "  |  one",
        "  | +two",
    ]
    assert '"insertions"' not in ran.out


def test_the_diff_comes_from_the_stored_patch_and_not_from_the_argument(base: Path) -> None:
    args = {**get_args(base), "diff": "diff --git a/x b/x\n", "files": 1}
    assert [file["path"] for file in load_call_patch(base, args).files] == [
        ".claude/settings.json",
        "b.txt",
        "src/a.txt",
    ]


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_merge_without_its_patch_is_shown_as_such_and_cannot_be_approved(
    base: Path,
    lemming: Lemming,
    damage: str,
) -> None:
    file = base / f"logs/patches/{get_args(base)['patch']}.patch"
    if damage == "missing":
        file.unlink()
    else:
        file.write_text(file.read_text().replace("+two", "+evil"))
    problem = "must have its digest" if damage == "changed" else "must be in logs/patches"
    assert problem in load_call_patch(base, get_args(base)).problem
    assert "CANNOT BE APPROVED" in lemming("waiting", find_waiting_id(base)).out
    ran = lemming("approve", find_waiting_id(base))
    assert ran.status != 0
    assert problem in ran.err
    assert list_person_inbox(base), "it still waits"


@pytest.mark.parametrize("change", [{"paths": []}, {"tree": "4b825dc642cb6eb9a060e54bf8d69288fbee4904"}])
def test_arguments_that_are_not_those_of_the_patch_cannot_be_approved(base: Path, change: dict[str, Any]) -> None:
    assert load_call_patch(base, {**get_args(base), **change}).problem
    edits = [f"{key}={value}" for key, value in change.items()]
    with pytest.raises(LemmingError):
        decide(base, find_waiting_id(base), "approve", edits=edits)


def test_an_approved_merge_is_made_exactly_as_it_was_shown(base: Path) -> None:
    args = get_args(base)
    decide(base, find_waiting_id(base), "approve")
    run_once(base)
    assert read_site(base, "rev-parse", "lemming/coder^{tree}") == args["tree"]


def test_a_person_edits_the_patch_before_it_is_merged(base: Path, lemming: Lemming) -> None:
    # An editor leaves the numbers in the header of the hunk as they were.
    (base.parent / "edited.patch").write_text(load_patch_text(base).replace("+two\n", "+zwei\n+drei\n"))
    ran = lemming("approve", find_waiting_id(base), "--patch", f"{base.parent}/edited.patch")
    assert "merge into lemming/coder: 3 files, +4 -0" in ran.err
    run_once(base)
    assert read_site(base, "show", "lemming/coder:src/a.txt") == "one\nzwei\ndrei"


def test_a_patch_that_does_not_apply_is_refused_with_its_hunk(base: Path, lemming: Lemming) -> None:
    (base.parent / "edited.patch").write_text(load_patch_text(base).replace("\n one\n", "\n ones\n"))
    ran = lemming("approve", find_waiting_id(base), "--patch", f"{base.parent}/edited.patch")
    assert "hunk 1 of src/a.txt does not apply (@@ -1 +1,2 @@)" in ran.err
    assert len(list_person_inbox(base)) == 1


def test_a_person_edits_the_content_of_one_file(base: Path) -> None:
    review = find_call_review("merge")
    assert review
    assert review.load_file(Organisation(base), get_args(base), "src/a.txt") == "one\ntwo\n"
    edit = PatchEdit(contents={"src/a.txt": "one\ntwo!\n"})
    entry = decide(base, find_waiting_id(base), "approve", patch_edit=edit)
    assert entry.payload["args"]["paths"] == get_args_after(entry.payload)
    run_once(base)
    assert read_site(base, "show", "lemming/coder:src/a.txt") == "one\ntwo!"


def get_args_after(payload: dict[str, Any]) -> list[str]:
    return [line.split(" b/")[1] for line in payload["args"]["diff"].splitlines() if line.startswith("diff --git ")]


def test_an_edit_that_leaves_no_change_is_refused(base: Path) -> None:
    contents = load_patch_text(base).replace("+two\n", "")
    only_a = contents[contents.index("diff --git a/src/a.txt") :]
    with pytest.raises(UsageError, match="must change a file"):
        decide(base, find_waiting_id(base), "approve", patch_edit=PatchEdit(patch=only_a.encode()))


def test_the_worker_is_told_why_a_person_denied_its_patch(base: Path, lemming: Lemming) -> None:
    reason = "b.txt:1: say what is new\nno settings, please"
    assert lemming("deny", find_waiting_id(base), "--reason", reason).status == 0
    run_once(base)
    assert read_site(base, "branch", "--list", "lemming/coder") == ""
    prompt = lemming("prompt", "coder").out + lemming("tick", "2").out
    assert "b.txt:1: say what is new" in prompt


def test_signs_that_are_not_seen_far_down_in_a_patch_are_told(base: Path) -> None:
    review = find_call_review("merge")
    assert review
    text = "".join(f"line {number}\n" for number in range(4000)) + "pay \u202edna\n"
    edited = review.apply_edit(Organisation(base), get_args(base), PatchEdit(contents={"b.txt": text}))
    assert "\u202e" not in edited["diff"]
    assert load_call_patch(base, edited).flags["the whole patch"] == "signs that are not seen: U+202E"


def test_a_tick_shows_the_merge_in_words(base: Path, lemming: Lemming) -> None:
    assert f"tool      {ONE_LINE}  " in lemming("tick", "1").out


def test_a_file_of_which_a_patch_shows_nothing_is_named_with_its_size(tmp_path: Path) -> None:
    script = "cat > /dev/null; mkdir src/__pycache__; printf '\\000code' > src/__pycache__/a.pyc; echo two >> src/a.txt"
    base, _ = make_asking_org(tmp_path, script)
    run_once(base)
    patch = load_call_patch(base, get_args(base))
    assert patch.flags == {"binary files": "1 with 5 bytes, of which nothing is shown: src/__pycache__/a.pyc"}
    assert "  a.pyc  binary (5 bytes), new file" in format_tree(patch.files)
