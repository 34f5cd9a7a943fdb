"""`lemming export`: no known secret is in what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume

KEY = 'sk-"quoted"-0123456789'


@pytest.fixture
def leaky(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an organisation in whose files a known secret stands."""
    monkeypatch.setenv("SHOP_SECRET", KEY)
    make_org(base, resume("ada", instructions=f"Log in with {KEY}", title=f"Of {KEY}"))
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/notes.txt").write_text(f"the key\nis {KEY}\n")
    return base


@pytest.mark.parametrize("as_json", [False, True], ids=["yaml", "json"])
def test_an_exported_organisation_holds_no_known_secret_whichever_way_it_goes(
    leaky: Path, lemming: Lemming, tmp_path: Path, as_json: bool
) -> None:
    more = ["--json"] if as_json else []
    printed = lemming("export", "org", *more).out
    file = tmp_path / "out.yaml"
    assert lemming("export", "org", "--output", str(file), *more).status == 0
    assert file.read_text() == printed
    assert "0123456789" not in printed
    assert "[redacted SHOP_SECRET]" in printed


def test_a_report_is_for_nobody_but_its_owner_and_holds_no_known_secret(
    leaky: Path, lemming: Lemming, tmp_path: Path
) -> None:
    assert lemming("report", "--html", str(tmp_path / "report")).status == 0
    files = [file for file in (tmp_path / "report").rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    data = b"".join(file.read_bytes() for file in (tmp_path / "report/data").iterdir())
    assert b"0123456789" not in data
