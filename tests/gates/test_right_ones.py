"""What ships and what the documentation prints is right: strictness refuses none of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.gates.gate_format import Gate
from lemming.import_export.apply_document import load_template
from lemming.kernel.agents import survey_agents
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.agent_validation import validate_survey

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(it for it in (ROOT / "examples").iterdir() if (it / "agents").is_dir())
TEMPLATES = ("newsroom", "recorded", "empty", "desk", "research", "watch", "review", "game")
GATES = re.compile(r'\{"at": "(?:in|call|result|out|spend)",')


def require_right(base: Path) -> None:
    org = Organisation(base)
    found = validate_survey(org, load_config(org), survey_agents(org))
    assert (found.settings_problems, found.survey.broken) == ((), {})


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_right(base: Path, name: str) -> None:
    fs.make_root(base)
    for file, content in load_template(name).items():
        fs.write_atomic(base, file, content)
    require_right(base)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: it.name)
def test_an_example_is_right(base: Path, example: Path) -> None:
    shutil.copytree(example, base, dirs_exist_ok=True)
    require_right(base)


def test_every_gate_that_the_documentation_prints_is_one() -> None:
    read: list[Any] = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        for found in GATES.finditer(text):
            try:
                plain, _ = json.JSONDecoder().raw_decode(text, found.start())
            except json.JSONDecodeError:  # a piece of one, with dots for the rest
                continue
            read.append(to_value(Gate, plain))
    assert len(read) > 10
