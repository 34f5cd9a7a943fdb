"""The files of the templates that ship, by their paths in an organisation."""

from __future__ import annotations

from pathlib import Path

BUILT_ON = {"recorded": "newsroom"}
"""Templates that add to another, or replace files of it."""

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


def template_files(template: str) -> dict[str, bytes]:
    """Return the files of a template by their path in the organisation."""
    root = TEMPLATES / template
    own = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    return {**template_files(BUILT_ON[template]), **own} if template in BUILT_ON else own
