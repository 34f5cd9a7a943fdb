"""Skills as the format's own validator reads them: it and we agree on what is in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.capabilities.skills.skill import parse_skill
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError

skills_ref = pytest.importorskip("skills_ref", reason="the reference validator is not installed")

LONG = "x" * 70
TEXTS = [
    ("pdf-forms", "name: pdf-forms\ndescription: Fill in forms."),
    ("pdf", "name: pdf\ndescription: d\nlicense: MIT\nallowed-tools: Read Bash(git *)\ncompatibility: Unix"),
    ("pdf", 'name: pdf\ndescription: d\nmetadata:\n  author: me\n  version: "1.0"'),
    ("pdf", "name: other\ndescription: d"),
    ("pdf", "description: d"),
    ("pdf", "name: pdf"),
    ("pdf", "name: pdf\ndescription: ''"),
    ("Pdf", "name: Pdf\ndescription: d"),
    ("pdf_forms", "name: pdf_forms\ndescription: d"),
    ("pdf--x", "name: pdf--x\ndescription: d"),
    ("-pdf", "name: -pdf\ndescription: d"),
    ("é1", "name: é1\ndescription: d"),
    (LONG, f"name: {LONG}\ndescription: d"),
    ("pdf", f"name: pdf\ndescription: {'d' * 1024}"),
    ("pdf", f"name: pdf\ndescription: {'d' * 1025}"),
    ("pdf", f"name: pdf\ndescription: d\ncompatibility: {'c' * 501}"),
    ("pdf", "name: [pdf\ndescription: d"),
    ("pdf", "- name"),
]


@pytest.mark.parametrize(("name", "header"), TEXTS)
def test_we_and_the_validator_agree_on_what_is_in_order(tmp_path: Path, name: str, header: str) -> None:
    text = f"---\n{header}\n---\n# How\n"
    (tmp_path / name).mkdir()
    (tmp_path / name / paths.SKILL_FILE).write_text(text)
    try:
        is_in_order = not parse_skill(f"skills/{name}", text).remarks
    except ConfigError:
        is_in_order = False
    assert is_in_order == (skills_ref.validate(tmp_path / name) == [])
