"""Secrets do not reach files and error texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from lemming.kernel.base.redaction.secrets import redact, redact_values, redacted_excerpt, refresh


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ORG_API_KEY", "ORG_TOKEN", "my_secret", "DB_PASSWORD"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}")
    monkeypatch.setenv("SHORT_KEY", "hello")
    monkeypatch.setenv("KEYBOARD_LAYOUT", "programmer-dvorak")
    refresh()
    yield
    monkeypatch.undo()
    refresh()


def test_values_of_secret_variables_are_replaced_by_their_names() -> None:
    assert redact_values("a value-of-org_api_key b") == "a [redacted ORG_API_KEY] b"
    assert redact_values("value-of-my_secret value-of-db_password") == "[redacted my_secret] [redacted DB_PASSWORD]"


@pytest.mark.parametrize("text", ["hello world", "programmer-dvorak", os.environ.get("PATH", "/usr/bin"), ""])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redact_values(text) == text


def test_a_value_is_found_as_json_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORG_KEY", 'line one\nline "two" é')
    refresh()
    line = json.dumps({"text": os.environ["ORG_KEY"]})
    assert redact_values(line) == '{"text": "[redacted ORG_KEY]"}'
    assert redact_values(json.dumps({"text": os.environ["ORG_KEY"]}, ensure_ascii=False)) == redact_values(line)


IN_A_LINE = r"""
import os
from lemming.kernel.base.redaction.secrets import redact_bytes
os.environ["ORG_KEY"] = "geheimnis-\u00e4"
print(redact_bytes('{"text": "geheimnis-\u00e4"}'.encode()))
"""


def test_a_value_is_found_in_a_line_where_the_locale_is_not_utf8(tmp_path: Path) -> None:
    locale = tmp_path / "de_DE.ISO-8859-1"
    try:
        subprocess.run(["localedef", "-i", "de_DE", "-f", "ISO-8859-1", locale], check=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no such locale can be made here")
    told = subprocess.run(
        [sys.executable, "-c", IN_A_LINE],
        env={**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": locale.name, "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert told.stdout.strip() == """b'{"text": "[redacted ORG_KEY]"}'"""


def test_a_value_inside_a_longer_one_does_not_spoil_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "12345678")
    monkeypatch.setenv("B_KEY", "12345678-and-more")
    refresh()
    assert redact_values("12345678-and-more") == "[redacted B_KEY]"


def test_the_environment_is_read_again_for_errors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATE_TOKEN", "came-later")
    assert redact_values("came-later") == "came-later"
    assert redact("came-later") == "[redacted LATE_TOKEN]"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-0123456789abcdef",
        "sk-ant-api03-abcdefgh",
        "ghp_0123456789abcdefghij",
        "github_pat_11ABCDEFG0123456",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_known_shapes_are_taken_out_of_errors(secret: str) -> None:
    assert redact(f"before {secret} after") == "before [redacted] after"


def test_what_follows_bearer_and_passwords_in_addresses_are_taken_out() -> None:
    assert redact('{"Authorization": "Bearer abcdefgh1234"}') == '{"Authorization": "Bearer [redacted]"}'
    assert redact("http://me:pass@host/v1") == "http://[redacted]@host/v1"


@pytest.mark.parametrize(
    "text", ["risk-averse-behaviour", "the bearer of this", "http://host:8000/a@b", "task-oriented"]
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert redact(text) == text


def test_an_excerpt_is_redacted_before_it_is_cut() -> None:
    assert "value-of" not in redacted_excerpt("x" * 10 + "value-of-org_api_key", 18)
    assert redacted_excerpt("a\n b\t c") == "a b c"
    assert len(redacted_excerpt("word " * 100, 50)) <= 50
