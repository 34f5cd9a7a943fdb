"""How the browser is let in: no process's arguments have the token, and a kept one outlasts a restart."""

from __future__ import annotations

import os
import signal
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from in_browser import opened_until_lost
from terminal import Lemming

from lemming.dashboard.page_server import StoredToken, load_token, serve_page, serve_private_page, store_token
from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/lemming"


def test_a_token_is_kept_for_its_owner_alone_and_for_one_organisation(tmp_path: Path, state: Path) -> None:
    first = load_token(tmp_path / "a")
    store_token(tmp_path / "a", StoredToken(first.token, 9000))
    assert load_token(tmp_path / "a") == (first.token, 9000)
    assert load_token(tmp_path / "b").token != first.token
    assert [os.stat(file).st_mode & 0o777 for file in state.iterdir()] == [0o600]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"token": "short", "port": 1}', b'{"token": "'])
def test_a_kept_token_that_is_none_is_made_anew(tmp_path: Path, state: Path, content: bytes) -> None:
    store_token(tmp_path, StoredToken("x" * 40, 1))
    next(state.iterdir()).write_bytes(content)
    assert len(load_token(tmp_path).token) >= 32


def test_the_browser_is_told_of_a_private_file_and_never_of_the_token(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    opened = list[str]()

    def open_(address: str) -> bool:
        opened.append(address)
        text = Path(urlsplit(address).path).read_text()
        opened.append(text)
        assert os.stat(urlsplit(address).path).st_mode & 0o077 == 0
        signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(webbrowser, "open", open_)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True, flush=lambda: None, write=len))
    lemming("dash", "--port", "0")
    address, text = opened
    assert address.startswith("file://")
    assert "token" not in address
    assert "/?token=" in text
    assert not Path(urlsplit(address).path).exists()


@pytest.mark.long
def test_the_private_file_leads_to_the_page(browser: Any, org: Path) -> None:
    with serve_page(org, port=0) as address, serve_private_page(org, address) as file:
        tab = browser.new_page()
        tab.goto(file)
        tab.wait_for_selector(".queue")
        assert "token" not in tab.url
        tab.close()


@pytest.mark.long
def test_with_a_kept_token_a_tab_comes_back_after_a_restart_and_a_reload(browser: Any, org: Path) -> None:
    kept: dict[str, Any] = {"token": load_token(org).token, "is_token_stored": True}
    with serve_page(org, port=0, **kept) as address, opened_until_lost(browser, address) as tab:
        port = urlsplit(address).port
    tab.wait_for_selector(".state.lost:has-text('comes back by itself')")
    with serve_page(org, port=port, **kept):
        run_once(org, clock=FrozenClock())
        tab.wait_for_selector(".facts dd:text-is('5')")
        tab.reload()
        tab.wait_for_selector(".queue")
    tab.context.close()


def test_without_one_the_page_does_not_say_that_it_comes_back(browser: Any, org: Path) -> None:
    with serve_page(org, port=0) as address, opened_until_lost(browser, address) as tab:
        pass
    tab.wait_for_selector(".state.lost:has-text('open the address that it prints')")
    tab.context.close()
