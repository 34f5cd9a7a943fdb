"""What the organisation names as secret reaches none of its files, whatever a model or a backend echoes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fault_server import FaultServer

from lemming.engine import run_once
from lemming.kernel.base.redaction.secrets import (
    redact_untrusted,
    redact_values,
    redacted_excerpt,
    refresh,
    register_secret_variables,
)
from lemming.kernel.llm.circuit_breaker import circuit_name
from lemming.kernel.logging_config import log_agent_action
from lemming.kernel.memory import load_memory
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, tree

KEY = "p4t-hush/hush+42"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    refresh()


def test_a_key_under_any_name_that_a_server_echoes_reaches_no_file(
    base: Path, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOO_AUTHENTICATION", f" {KEY}\n")
    models = {
        "echo": {
            "provider": "openai",
            "model": "m",
            "options": {"base_url": faults.url("echo") + "/v1", "api_key_env": "FOO_AUTHENTICATION"},
        }
    }
    ada = resume("ada", model={"key": "echo"}, permissions={"read_outboxes": ["*"], "tools": ["memory_write"]})
    make_org(base, ada, models=models, org={"history": "git"})
    report = run_once(base)
    assert [turn.status for turn in report.turns] == ["done"]
    assert load_memory(base, "ada", "seen") == "Bearer [redacted FOO_AUTHENTICATION]"
    for forms in (KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode(), json.dumps(KEY)[1:-1]):
        holding = [name for name, raw in tree(base, without=()).items() if forms.encode() in raw]
        assert holding == []


def test_a_value_is_found_in_whatever_case_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_API_KEY", KEY)
    refresh()
    for said in KEY.upper(), KEY.title(), f"\u0130 {KEY.upper()} \u0130":
        assert redact_untrusted(said) == said.replace(KEY.upper(), KEY.title()).replace(
            KEY.title(), "[redacted FOO_API_KEY]"
        )


def test_a_key_that_hides_behind_escapes_of_json_is_found() -> None:
    register_secret_variables({"api_key_env": "FOO_AUTH"}, "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOO_AUTH", KEY)
        refresh()
        hidden = '{"text": "\\u00' + f"{ord(KEY[0]):02x}" + KEY[1:].replace("/", "\\/") + '"}'
        assert json.loads(hidden)["text"] == KEY
        assert redact_untrusted(hidden) == '{"text": "[redacted FOO_AUTH]"}'
        assert redact_untrusted('{"text": "a \\u0041 \\/ b"}') == '{"text": "a \\u0041 \\/ b"}'


@pytest.mark.parametrize("before", ["", "x", "xy", "me:", "Bearer "])
def test_a_key_is_found_in_base64_whatever_stands_around_it(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_AUTH", KEY)
    refresh()
    text = base64.b64encode(f"{before}{KEY}".encode()).decode()
    assert "[redacted FOO_AUTH]" in redact_values(text)
    assert "[redacted FOO_AUTH]" in redact_values(text.replace("+", "-").replace("/", "_"))


@pytest.mark.parametrize(
    ("options", "is_secret"),
    [
        ({"api_key_env": "VARIABLE_0"}, True),
        ({"token_env": "VARIABLE_1"}, True),
        ({"env": ["VARIABLE_2"]}, True),
        ({"env": {"VARIABLE_3": "passed on"}}, True),
        ({"headers": {"authorization": "VARIABLE_4"}}, True),
        ({"path": "other"}, False),
    ],
)
def test_a_variable_that_options_name_holds_a_secret(
    options: dict[str, Any], is_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        monkeypatch.setenv(f"VARIABLE_{number}", f"us-region-{number}")
    register_secret_variables(options, "here")
    variable = re.search(r"VARIABLE_(\d)", str(options))
    value = f"us-region-{variable[1] if variable else 5}"
    assert (redact_values(value) != value) == is_secret


def test_a_short_value_is_secret_where_a_key_was_named_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    register_secret_variables({"api_key_env": "SHORT", "env": ["FLAG", "HOME"]}, "here")
    for name, value in {"SHORT": "123456", "FLAG": "enabled", "HOME": "/home/of-somebody"}.items():
        monkeypatch.setenv(name, value)
    refresh()
    assert redact_values("123456 enabled /home/of-somebody") == "[redacted SHORT] enabled /home/of-somebody"
    monkeypatch.setenv("SHORT", "true")
    refresh()
    assert redact_values("true") == "true"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("DATABASE_URL", "postgres://app:hunter2%21x@db:5432/main", "hunter2!x"),
        ("DATABASE_URL", "postgres://app:hunter2@db:5432/main", "hunter2"),
        ("OLLAMA_HOST", "me:hunter2@box:11434", "hunter2"),
        ("HTTPS_PROXY", "http://:hunter2@proxy:3128", "hunter2"),
        ("SENTRY_DSN", "https://0123456789abcdef@sentry.example/1", "0123456789abcdef"),
        ("SERVICE", "https://example.org/?user=me&api_key=hunter2", "hunter2"),
        ("PAT", "in-no-shape", "in-no-shape"),
        ("GIT_PAT", "in-no-shape", "in-no-shape"),
        ("OPENROUTER", "sk-or-v1-0123456789", "sk-or-v1-0123456789"),
    ],
)
def test_passwords_in_addresses_and_keys_by_their_look_are_secrets(
    name: str, value: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    refresh()
    assert redact_values(f"before {secret} after") == f"before [redacted {name}] after"


def test_a_password_in_an_address_of_the_settings_is_a_secret() -> None:
    register_secret_variables({"base_url": "https://me:tr0ub4dor@host/v1"}, "config/models.json")
    assert redact_values("tr0ub4dor") == "[redacted config/models.json]"
    assert circuit_name("ollama", {"host": "me:hunter2@box:11434"}) == "ollama box:11434"


def test_what_a_person_or_a_plugin_writes_is_redacted_too(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_TOKEN", KEY)
    refresh()
    make_org(base, resume("ada"))
    save_memory(base, "ada", "key", {"it is": KEY})
    write_person_entry(base, "ada", tick=1, kind="message", payload={"text": KEY}, tags=[], created_at="")
    assert [name for name, raw in tree(base).items() if KEY.encode() in raw] == []


def test_a_number_in_a_log_that_looks_like_a_secret_stays_a_number(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_secret_variables({"api_key_env": "PIN"}, "here")
    monkeypatch.setenv("PIN", "123456")
    refresh()
    make_org(base, resume("ada"))
    log_agent_action(base, "ada", 1, "ended", duration_ms=123456, notes="the pin is 123456")
    line = json.loads((base / "agents/ada/logs/activity.log").read_text())
    assert (line["duration_ms"], line["notes"]) == (123456, "the pin is [redacted PIN]")


def test_a_long_address_in_the_settings_is_looked_at_in_time() -> None:
    for long in ("a" * 900_000, "a-" * 450_000, "/" + "b_" * 450_000):
        register_secret_variables({"base_url": f"https://here{long}?access_key=hush-hush"}, "a long address")
        assert redact_values("hush-hush") == "[redacted a long address]"


def test_a_key_is_not_cut_in_two_before_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_SECRET", KEY)
    refresh()
    for cut in range(1, len(KEY)):
        assert KEY[:cut] not in redacted_excerpt(f"{' ' * (64 * 200 - cut)}{KEY}").split()


def test_a_key_at_the_end_of_a_models_long_name_reaches_no_file(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_SECRET", KEY)
    refresh()
    model = {"provider": "scripted", "model": "m" * 190 + KEY, "options": {"file": "config/answers.jsonl"}}
    make_org(base, resume("ada"), models={"scripted": model})
    run_once(base)
    for journal in (base / "logs/ticks").iterdir():
        replied = next(line for line in journal.read_text().splitlines() if "model_replied" in line)
        assert KEY[:8] not in replied
