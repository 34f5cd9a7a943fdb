"""Fixtures for the tests of capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from effect_plugins import Plugin
from evil_capability import Take, make_take
from quota_site import install

from lemming.kernel.plugins.plugin_registry import unregister


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is installed."""
    return install(tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """A plugin's module that can be imported once it is written."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    written = Plugin(folder, f"rules_{tmp_path.name}".replace("-", "_"))
    yield written
    written.unload()


@pytest.fixture
def evil(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Take]:
    """A function that takes a turn of ada under the capability `evil`, with the given code of a hook."""
    yield make_take(base, tmp_path, monkeypatch)
    unregister("capability", "evil")
