"""Where the disk does not say what is there, no code is taken for code that may run."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from pathlib import Path

import pytest
from refused import asked_with_each_look_refused
from workshop import Workshop

from lemming.kernel.access.plugin_files import find_module_files, find_writable_files
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files import fs
from lemming.libraries.permission_bindings import digest_command, digest_files
from lemming.libraries.tool_file_search import find_files
from lemming.testing import make_org, resume

SELECTABLE = 1024  # descriptors beyond which `select` does not go


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_makes_no_file_safe(tmp_path: Path, number: int) -> None:
    granted = f"{tmp_path}/org/shared/code"
    ada = resume("ada", permissions={"read_outboxes": [], "file_access": {"allow_write": [granted]}})
    (make_org(tmp_path / "org", ada) / "shared/code").mkdir(parents=True)
    base = tmp_path / "named"
    base.symlink_to("org")
    agents = {"ada": load_agent(base, "ada")}

    def problems() -> list[str]:
        return [it.message for it in find_writable_files(base, ["shared/code/tools.py"], agents)]

    whole = asked_with_each_look_refused(tmp_path, number, problems)
    assert "ada may write the file: permissions.file_access.allow_write" in whole


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_takes_no_file_out_of_what_is_agreed_to(tmp_path: Path, number: int) -> None:
    base = make_org(tmp_path / "org", resume("ada"))
    (base / "tools").mkdir()
    (base / "tools/real.py").write_text("print(1)")
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/run.py").symlink_to("../tools/real.py")
    words = ["python", "shared/run.py", "--config=config/models.json"]
    bound = asked_with_each_look_refused(base, number, lambda: digest_command(base, "x", words, words, ""))
    assert sorted(bound) == ["config/models.json", "tools/real.py", "x"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_makes_no_file_of_tools_of_a_link(tmp_path: Path, number: int) -> None:
    base = make_org(tmp_path / "org", resume("ada"))
    (base / "tools").mkdir()
    (base / "tools/mine.py").write_text("")
    (tmp_path / "other.py").write_text("")
    (base / "tools/linked.py").symlink_to(tmp_path / "other.py")
    files, wrong = asked_with_each_look_refused(base, number, lambda: find_files(base, ["tools/*.py"]))
    assert (files, [it.file for it in wrong]) == (["tools/mine.py"], ["tools/linked.py"])


def test_what_a_function_says_is_heard_however_many_files_are_open(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file("@tool\ndef mine() -> str:\n    return 'x'\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as files, contextlib.closing(shop.org):
        for _ in range(SELECTABLE):
            files.enter_context(open(os.devnull, "rb"))
        assert [shop.call("mine").output for _ in range(2)] == ["x", "x"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_binds_an_agreement_to_nothing_else(tmp_path: Path, number: int) -> None:
    base = make_org(tmp_path / "org", resume("ada"))
    (base / "linked.py").symlink_to("config/models.json")
    bound = asked_with_each_look_refused(base, number, lambda: digest_files(base, ["linked.py"]))
    assert "bytes of" in bound["linked.py"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_hides_no_file_of_a_plugin(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_org(tmp_path / "org", resume("ada"))
    for file in ("mine.py", "mine/__init__.py", "beside.py"):
        fs.write_atomic(base, f"plugins/{file}", b"")
    monkeypatch.setattr("sys.path", [f"{base}/plugins"])
    files = asked_with_each_look_refused(base, number, lambda: [*find_module_files(base, "mine")])
    assert sorted({*files}) == ["plugins/beside.py", "plugins/mine.py", "plugins/mine/__init__.py"]


def test_a_disk_that_refuses_a_function_is_no_result_of_its_call(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file("""
        from lemming.kernel.base.errors import DiskError
        @tool
        def mine() -> str:
            raise DiskError("cannot read: Input/output error", where=os.getcwd() + "/shared/x")
        """)
    with contextlib.closing(shop.org), pytest.raises(DiskError, match="shared/x: cannot read"):
        shop.call("mine")
