"""Gates on how long a text may be: the length that is allowed passes, and one more does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gated import call, finished, org, turn_of


@pytest.mark.parametrize(
    ("then", "text", "outcome", "written"),
    [
        ("block", "x" * 10, "ok", "x" * 10),
        ("block", "x" * 11, "refused", None),
        ("rewrite", "x" * 10, "ok", "x" * 10),
        ("rewrite", "x" * 11, "ok", "x" * 10),
    ],
)
def test_a_text_may_be_as_long_as_the_gate_says(
    base: Path, then: str, text: str, outcome: str, written: str | None
) -> None:
    path = "workspace/a"
    keys = len("path") + len(path) + len("content")
    gate: dict[str, Any] = {"at": "call", "tool": "file_write", "max_length": keys + 10, "then": then}
    org(base, [gate], call("file_write", path=path, content=text))
    turn_of(base)
    assert [it["outcome"] for it in finished(base)] == [outcome]
    file = base / "agents/ada/workspace/a"
    assert (file.read_text() if file.exists() else None) == written
