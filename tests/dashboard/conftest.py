"""Fixtures for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_org import make_desk
from terminal import Lemming, typed_at

from lemming.dashboard.page_server import serve_page


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that works on the organisation in `base`."""
    return typed_at(base, capsys)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from in_browser import running  # skips where no browser can be driven

    with running() as started:
        yield started


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_desk(tmp_path_factory.mktemp("desk") / "org")


@pytest.fixture
def org(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "org"))


@pytest.fixture
def address(org: Path) -> Iterator[str]:
    from in_browser import TOKEN

    with serve_page(org, port=0, token=TOKEN) as found:
        yield found
