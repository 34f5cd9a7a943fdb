"""Two pages promise nothing that no test holds: the tests that they name are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lemming.capabilities.gates.untrusted_senders import validate_untrusted_access
from lemming.kernel.org.config import load_config
from lemming.testing import make_org, resume

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs/security.md").read_text()
HOW_WE_KNOW = (REPOSITORY / "docs/compared.md").read_text().partition("\n## How we know\n")[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAGE + HOW_WE_KNOW)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_page_names_is_there(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (REPOSITORY / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_what_no_test_holds_names_the_measurement_that_says_it() -> None:
    rows = [line for line in HOW_WE_KNOW.splitlines() if line.startswith("| ") and "`tests/" not in line]
    assert [row for row in rows if row != "| promise | held by | figures |" and "`python -m " not in row] == []


def test_every_promise_names_a_test() -> None:
    section = PAGE.partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if row != "| promise | held by |"]
    assert len(promises) > 30
    assert [row for row in promises if "`tests/" not in row] == []


def test_the_rules_it_begins_with_are_settings_that_hold(base: Path) -> None:
    block = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    channel = {"desk": {"provider": "folder", "options": {"path": "in"}}}
    ada = resume("ada", permissions={"tools": ["shell", "create_agent"], "read_outboxes": ["desk"]})
    desk = resume("desk", model={"key": "desk"})
    make_org(base, ada, desk, models=channel)
    assert [*validate_untrusted_access(base, load_config(base))] != []
    make_org(base, ada, desk, models=channel, org=json.loads(block[1]))
    assert [*validate_untrusted_access(base, load_config(base))] == []
