"""`lemming send --attach`: a person's message carries files of the organisation."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume


@pytest.fixture(autouse=True)
def org(base: Path) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}))
    (base / "shared").mkdir()
    (base / "shared/chart.png").write_bytes(b"chart")


def test_the_entry_names_the_file_and_what_is_in_it(base: Path, lemming: Lemming) -> None:
    for file in ("shared/chart.png", f"{base}/shared/chart.png"):
        ran = lemming("send", "--attach", file, "What does it show?")
        payload = json.loads((base / ran.out.strip()).read_text())["payload"]
        assert payload["attachments"] == [{"path": "shared/chart.png", "sha256": sha256(b"chart").hexdigest()}]


def test_without_attachments_there_is_no_such_key(base: Path, lemming: Lemming) -> None:
    ran = lemming("send", "hello")
    assert "attachments" not in json.loads((base / ran.out.strip()).read_text())["payload"]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("/etc/hostname", "is not a file of the organisation"),
        ("shared/none.png", "cannot be attached: No such file"),
        ("shared", "cannot be attached: Is a directory"),
    ],
)
def test_what_cannot_be_attached_is_told_and_nothing_is_sent(base: Path, lemming: Lemming, file: str, why: str) -> None:
    ran = lemming("send", "--attach", file, "hello")
    assert ran.status == 2
    assert why in ran.err
    assert not (base / "agents/human/outbox").exists()
