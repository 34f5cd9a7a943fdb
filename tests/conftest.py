"""Fixtures for the whole suite."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import typer
from sampling import EVERYTHING

from lemming.kernel.base.redaction import secrets
from lemming.kernel.files.fs import AppendFile
from lemming.kernel.files.stat_cache import probe_mtime_resolution


@pytest.fixture(autouse=True, scope="session")
def _no_state_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each secret that a process knows is looked for in every text, which makes every later turn dearer."""
    yield
    secrets._named_variables.clear()
    secrets._config_passwords.clear()
    secrets._secrets = None


HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 << 30

if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
    os.environ["TMPDIR"] = str(MEMORY)  # a suite that flushes to a disk takes twice the time
    tempfile.tempdir = None

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` would have every program that a test starts ignore it

# It is asked four times for each command that is typed, and evaluates all annotations anew.
typer.main.get_params_from_function = lru_cache(typer.main.get_params_from_function)

# Every program that a test starts would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: the search for garbage would go through half a gigabyte of it each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make crash` runs: what is `long`, and most cases of what is a `sample`.

    Whatever is named on the command line is run.
    """
    assert not [item.nodeid for item in items if " at 0x" in item.nodeid], "workers would not agree"
    items.sort(key=lambda item: item.path.parent != HERE)  # no worker begins with a whole page when others are done
    if EVERYTHING or any("::" in argument for argument in config.args):
        return
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    for item in items:
        sample = item.get_closest_marker("sample")
        name = item.nodeid.partition("[")[0]
        if not item.get_closest_marker("long") and (not sample or seen[name] % sample.args[0] == 0):
            kept.append(item)
        seen[name] += 1
    items[:] = kept


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An empty folder for an organisation."""
    return tmp_path / "org"


@pytest.fixture(params=["coarse stamps", "the disk's own stamps"])
def stamps(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Run a test with stamps that cannot tell changes apart, and with those that the disk here has."""
    probe_mtime_resolution(tmp_path.stat)
    if request.param == "the disk's own stamps":
        with AppendFile(tmp_path, "stamps") as file:
            probe_mtime_resolution(file.restamp)
