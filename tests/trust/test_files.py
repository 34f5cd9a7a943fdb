"""Files that a turn writes bear how far it is trusted, and whoever reads them is trusted no further."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tracked import finished, tick, tracked, write

from lemming.capabilities.trust.author_labels import OrgTrustLabeler
from lemming.capabilities.trust.sidecar_labels import (
    SidecarLabels,
    get_folder_label_path,
    get_label_path,
    make_label_effect,
)
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import resume, say

SHARED = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
TOOLS = [
    "file_write", "file_read", "file_append", "file_edit", "file_move", "file_list", "file_search", "search",
    "store_read", "store_write", "shell", "skill_read", "attach",
]  # fmt: skip


def worker(name: str, reads: list[str] | None = None, **blocks: Any) -> dict[str, Any]:
    permissions = {"read_outboxes": reads or [], "tools": TOOLS, "file_access": SHARED}
    return resume(name, permissions=permissions, **blocks)


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"outbox_entries": [], "tool_calls": [{"tool": tool, "args": args}]}


def played(base: Path, *calls: tuple[str, dict[str, Any]], **more: Any) -> Path:
    """Make an organisation whose agent `ada` reads strangers and `ben` none; each calls a tool a tick."""
    script = [{"agent": agent, "tick": number, "reply": reply} for number, (agent, reply) in enumerate(calls, 1)]
    for line in script:
        line["reply"] = line["reply"]
    return tracked(base, worker("ada", ["post"]), worker("ben"), script=[*script, {"reply": say("idle")}], **more)


def word(base: Path, place: str) -> str:
    file = base / get_label_path(place)
    return str(json.loads(file.read_bytes())["trust"]) if file.exists() else ""


def tainted(base: Path, *calls: tuple[str, dict[str, Any]], path: str = "shared/x.txt", **more: Any) -> Path:
    """Have ada write a file in the first tick, told by a stranger; the calls are made after that."""
    played(base, ("ada", call("file_write", path=path, content="obey me\n")), *calls, **more)
    write(base, "post", "write it down")
    tick(base)
    return base


def test_a_file_that_an_outside_turn_writes_is_marked(base: Path) -> None:
    tainted(base)
    mark = json.loads((base / "trust/shared/x.txt.json").read_bytes())
    assert (mark["trust"], mark["tick"], mark["agent"], mark["file"]) == ("outside", 1, "ada", "shared/x.txt")
    assert [each["is"] for each in mark["from"]] == ["outside"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "reply",
    [
        call("file_read", path="shared/x.txt"),
        call("file_edit", path="shared/x.txt", old="absent", new="y"),
        call("file_list", path="shared"),
        call("file_search", pattern="obey"),
        call("search", query="obey"),
    ],
    ids=lambda reply: str(reply["tool_calls"][0]["tool"]),
)
def test_whoever_is_given_it_by_a_tool_is_outside(base: Path, reply: dict[str, Any]) -> None:
    tainted(base, ("ben", reply))
    turn = tick(base)["ben"]
    assert turn.trust == {"is": "outside", "from": [{"is": "outside", "of": "shared/x.txt"}]}
    (gave,) = finished(base, 2, "ben")
    assert gave["trust"]["is"] == "outside"
    assert tick(base)["ben"].trust["is"] == "outside"  # it was kept for its next turn


@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", ["a*b", "a[b]", "*", "[!a]", "a?"])
@pytest.mark.parametrize("tool", ["file_list", "file_search", "search", "file_read"])
def test_a_folder_may_be_called_like_a_pattern_and_its_labels_hold(base: Path, tool: str, folder: str) -> None:
    place = f"shared/{folder}"
    args: dict[str, Any] = {
        "file_list": {"path": place},
        "file_search": {"path": place, "text": "obey"},
        "search": {"folder": place, "query": "obey"},
        "file_read": {"path": f"{place}/x.txt"},
    }[tool]
    tainted(base, ("ben", call(tool, **args)), path=f"{place}/x.txt")
    turn = tick(base)["ben"]
    assert finished(base, 2, "ben")[0]["success"]
    assert turn.trust["is"] == "outside"


def test_a_context_file_makes_every_turn_outside(base: Path) -> None:
    tainted(base)
    (base / "agents/ben/resume.json").write_bytes(dump_pretty(worker("ben", context=[{"file": "./shared/x.txt"}])))
    assert tick(base)["ben"].trust["from"] == [{"is": "outside", "of": "shared/x.txt"}]


def test_the_whole_file_written_anew_is_as_far_trusted_as_who_wrote_it(base: Path) -> None:
    tainted(base, ("ben", call("file_write", path="shared/x.txt", content="mine")))
    tick(base)
    assert word(base, "shared/x.txt") == "agent"
    assert tick(base)["ben"].trust == {"is": "agent"}


def test_what_is_added_to_it_or_moved_is_trusted_no_further(base: Path) -> None:
    more = call("file_append", path="shared/x.txt", content="mine")
    tainted(base, ("ben", more), ("ben", call("file_move", path="shared/x.txt", to="y.txt")))
    assert tick(base)["ben"].trust == {"is": "agent"}
    assert word(base, "shared/x.txt") == "outside"
    assert tick(base)["ben"].trust == {"is": "agent"}
    assert word(base, "agents/ben/workspace/y.txt") == "outside"


def test_what_a_stranger_made_an_agent_keep_in_the_store_is_outside(base: Path) -> None:
    kept = call("store_write", key="price", value=1, expect=None)
    played(base, ("ada", kept), ("ben", call("store_read", key="price")))
    write(base, "post", "write it down")
    tick(base)
    assert tick(base)["ben"].trust["from"] == [{"is": "outside", "of": "shared/store/price.json"}]


def test_a_command_marks_all_that_it_may_have_written(base: Path) -> None:
    copies = call("shell", command="echo obey > a; mkdir b; echo obey > b/c")
    files = [("ada", call("file_write", path="a", content="mine")), ("ada", call("file_read", path="b/c"))]
    played(base, ("ada", copies), *files, shell={"sandbox": "none"}, retention_ticks=1)
    write(base, "post", "do it")
    turn = tick(base)["ada"]
    mark = base / get_folder_label_path("agents/ada/workspace")
    assert json.loads(mark.read_bytes())["trust"] == "outside"
    assert "trust/agents/ada/workspace/.all.json" in [file["path"] for file in turn.files]


def test_a_command_that_may_write_anywhere_marks_what_all_may_read(base: Path) -> None:
    copies = call("shell", command="mkdir -p ../../../shared; echo obey > ../../../shared/y.txt")
    played(base, ("ada", copies), ("ben", call("file_read", path="shared/y.txt")), shell={"sandbox": "none"})
    write(base, "post", "do it")
    tick(base)
    assert tick(base)["ben"].trust["is"] == "outside"


def test_a_command_that_copies_makes_the_copy_outside(base: Path) -> None:
    tainted(
        base,
        ("ben", call("shell", command="cp ../../../shared/x.txt y.txt")),
        ("ben", call("file_read", path="y.txt")),
        shell={"sandbox": "none"},
    )
    assert tick(base)["ben"].trust["is"] == "outside"
    assert json.loads((base / get_folder_label_path("agents/ben/workspace")).read_bytes())["trust"] == "outside"


def test_a_harmless_command_marks_nothing(base: Path) -> None:
    played(base, ("ben", call("shell", command="echo hello > y")), shell={"sandbox": "none"})
    assert tick(base)["ben"].trust == {"is": "agent"}
    assert not (base / "trust").exists()


def test_files_of_a_channel_are_as_far_trusted_as_it_is(base: Path) -> None:
    at = "/work"
    tracked(base, worker("ben"))
    (base / "agents/post/workspace").mkdir(parents=True)
    (base / "agents/post/workspace/mail.txt").write_text("obey")
    at = str(base / "agents/post/workspace")
    access = {"allow_read": [at], "allow_write": []}
    permissions = {"read_outboxes": [], "tools": TOOLS, "file_access": access}
    (base / "agents/ben/resume.json").write_bytes(dump_pretty(resume("ben", permissions=permissions,
        context=[{"file": f"{at}/mail.txt"}])))  # fmt: skip
    assert tick(base)["ben"].trust["from"][0]["of"] == "agents/post/workspace/mail.txt"


@pytest.mark.parametrize("place", ["a", ".all", ".all.", "a.json", "a.json.d", "x/.all.json", "a.json/b", "a.json.d/b"])
def test_no_file_has_the_mark_of_another_and_no_mark_is_a_folder(place: str) -> None:
    every = ["a", ".all", ".all.", "a.json", "a.json.d", "x/.all.json", "a.json/b", "a.json.d/b", "b", "a/b"]
    marks = [get_label_path(each) for each in every]
    assert len(set(marks)) == len(every)
    assert not any(get_label_path(place).startswith(f"{other}/") for other in marks)
    assert get_label_path(place) not in {get_folder_label_path(folder) for folder in ("a", "x", "a.json", "trust")}
    assert len(get_label_path("x" * 255).rpartition("/")[2].encode()) <= 255


@pytest.mark.parametrize(
    ("own", "above", "word"),
    [
        (("agent", 3), ("outside", 3), "outside"),
        (("outside", 3), ("agent", 3), "outside"),
        (("agent", 3), ("outside", 2), "agent"),
        (("agent", 2), ("outside", 3), "outside"),
    ],
)
def test_of_two_marks_the_later_counts_and_of_one_tick_the_lower(
    base: Path, own: tuple[str, int], above: tuple[str, int], word: str
) -> None:
    played(base)
    now, config = Organisation.from_path(base), load_config(base)
    authors = OrgTrustLabeler(now, config, survey_agents(now).agents, 4)
    effects = [make_label_effect("shared/x.txt", *own, "ada", []), make_label_effect("shared/", *above, "ada", [])]
    marks = SidecarLabels(now, authors, {effect.path_key: effect.content for effect in effects})
    assert marks.get_raw_label("shared/x.txt") == word


BREAKS = """
from lemming.ext import Capability, TakeResult, register_capability

@register_capability
class Fragile(Capability):
    name = "fragile"
    handles = (TakeResult,)
    def prepare(self, turn):
        return {"is": "here"}
    def intercept(self, effect, turn):
        if effect.call.tool == "shell":
            raise KeyError("after")
"""


def test_what_a_call_gave_in_a_turn_that_broke_is_trusted_no_further_in_the_next(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fragile_module.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    reads = call("shell", command="cat ../../../shared/x.txt")
    uses = {"plugins": ["fragile_module"], "capabilities": {"fragile": {}}, "shell": {"sandbox": "none"}}
    tainted(base, ("ben", reads), **uses)
    assert tick(base)["ben"].status == "failed"
    after = tick(base)["ben"]
    unregister("capability", "fragile")
    assert (after.status, after.trust["is"]) == ("done", "outside")


class Looking(Backend):
    """A model that takes images."""

    keeps_deadline = takes_images = True

    def complete(self, request: Request) -> Reply:
        return Reply(json.dumps(say("I see")))


def test_an_image_that_an_outside_turn_wrote_makes_who_is_shown_it_outside(base: Path) -> None:
    register_provider("looking_on", Looking)
    tainted(base, path="shared/x.png")
    models = json.loads((base / "config/models.json").read_bytes())
    models["eye"] = {"provider": "looking_on", "images": True}
    (base / "config/models.json").write_bytes(dump_pretty(models))
    (base / "agents/ben/resume.json").write_bytes(dump_pretty(worker("ben", ["eve"], model={"key": "eye"})))
    shown = {"path": "shared/x.png", "sha256": sha256((base / "shared/x.png").read_bytes()).hexdigest()}
    write(base, "eve", "look", attachments=[shown])
    turn = tick(base)["ben"]
    unregister("provider", "looking_on")
    assert turn.trust == {"is": "outside", "from": [{"is": "outside", "of": "shared/x.png"}]}


@pytest.mark.parametrize(
    "reply",
    [
        call("file_read", path="shared/xx.txt"),
        call("file_edit", path="shared/xx.txt", old="a", new="b"),
        call("file_move", path="shared/xx.txt", to="shared/y.txt"),
        call("attach", files=[{"path": "shared/xx.txt"}]),
        call("attach", files=["shared/xx.txt"]),
    ],
    ids=["file_read", "file_edit", "file_move", "attach", "attach by name"],
)
def test_the_name_of_a_strangers_file_that_is_told_as_the_nearest_is_a_strangers(
    base: Path, reply: dict[str, Any]
) -> None:
    tainted(base, ("ben", reply))
    turn = tick(base)["ben"]
    assert "shared/x.txt" in finished(base, 2, "ben")[0]["output"]
    assert turn.trust == {"is": "outside", "from": [{"is": "outside", "of": "shared/x.txt"}]}


def test_the_name_of_a_folder_that_is_told_as_the_nearest_is_that_of_who_filled_it(base: Path) -> None:
    tainted(base, ("ben", call("file_list", path="shared/invoice")), path="shared/invoices/x.txt")
    turn = tick(base)["ben"]
    assert "shared/invoices" in finished(base, 2, "ben")[0]["output"]
    assert turn.trust == {"is": "outside", "from": [{"is": "outside", "of": "shared/invoices/x.txt"}]}


def test_a_new_file_beside_a_strangers_makes_nobody_outside(base: Path) -> None:
    tainted(base, ("ben", call("file_append", path="shared/xx.txt", content="mine")))
    assert tick(base)["ben"].trust == {"is": "agent"}
