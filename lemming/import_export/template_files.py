"""Files of the shipped templates, by path in the organisation."""

from __future__ import annotations

from pathlib import Path

BASE_TEMPLATES = {"recorded": "newsroom"}
"""Templates that add to another, or replace files of it."""

REPOSITORIES = {"workers": "site"}
"""Templates with a folder that becomes a git repository with one commit."""
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


def load_template(template: str) -> dict[str, bytes]:
    """Return the files of a template by path in the organisation."""
    root = TEMPLATES / template
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return {**load_template(BASE_TEMPLATES[template]), **files} if template in BASE_TEMPLATES else files
