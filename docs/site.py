"""Builds the documentation as a site that is read and searched, also from disk: `make site`.

    python -m docs.site FOLDER

The pages keep their places, so that their links hold: the site is laid out as the repository is. What the
site has beside them is made here: the order of the pages, which follows their index, the reference of the
Python interface, out of its docstrings, and the templates as they run, each a page of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import lemming, run

REPOSITORY = Path(__file__).parent.parent
PAGES = ("README.md", "CHANGELOG.md", "LICENSE", "docs", "examples", "lemming/agent_skill")
RECORDED = ("desk", "research", "watch", "review", "game")
"""The templates whose answers are recorded, so that they run here without a model."""
PYTHON = {
    "Running": ("lemming.engine", "lemming.asking", "lemming.asking.outcome", "lemming.asking.streams"),
    "Building and deciding": ("lemming.building", "lemming.building.plans", "lemming.asking.people"),
    "Files": ("lemming.agents", "lemming.messages", "lemming.memory"),
    "Extending": ("lemming.tools", "lemming.providers", "lemming.turn.seams", "lemming.tick.seams"),
    "Testing": ("lemming.testing",),
}
TICKS = 6
GITHUB_ANCHORS = "pymdownx.slugs.slugify"
"""Makes the anchors of headings as GitHub does, so that one link holds in both places."""


def build(site: Path) -> None:
    """Write the site into a folder that is empty or not there. A link that leads nowhere ends it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pages = work / "pages"
        for name in PAGES:
            _copy(REPOSITORY / name, pages / name)
        (pages / "docs/gallery.md").write_text(_gallery(pages / "docs/gallery"), "utf-8")
        (pages / "docs/python.md").write_text("\n\n".join(["# Python", *_python()]) + "\n", "utf-8")
        for page in pages.rglob("*.md"):
            page.write_text(as_the_generator_reads_it(page.read_text("utf-8")), "utf-8")
        index = (pages / "docs/README.md").read_text("utf-8")
        (work / "mkdocs.yml").write_text(json.dumps(_settings(index)), "utf-8")
        command = (sys.executable, "-m", "zensical", "build", "--strict")
        subprocess.run(command, cwd=work, check=True)
        shutil.copytree(work / "site", site, dirs_exist_ok=True)


def as_the_generator_reads_it(page: str) -> str:
    """Return a page of Markdown as Python-Markdown wants it.

    What a block holds is one word there, and a list stands apart from what comes before it.

    >>> as_the_generator_reads_it("Two:\\n- a\\n- b\\n```json turn\\n{}\\n```\\n")
    'Two:\\n\\n- a\\n- b\\n```json\\n{}\\n```\\n'
    """
    blocks = re.split(r"(^```.*?^```)", page, flags=re.DOTALL | re.MULTILINE)
    prose = [
        re.sub(r"(^(?![-*] |\d+\. |\s).+\n)(?=[-*] |1\. )", r"\1\n", text, flags=re.M) for text in blocks[::2]
    ]
    code = [re.sub(r"^```(\w+) .*", r"```\1", text) for text in blocks[1::2]]
    return "".join(part for pair in zip(prose, [*code, ""], strict=True) for part in pair)


def order(index: str) -> Iterator[dict[str, list[Any]]]:
    """Yield the sections of the pages' index, each with its pages in their order, as places in the site."""
    for section in re.split(r"^## ", index.partition("## For coding agents")[0], flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        links = re.findall(r"^- \[(.+?)\]\((.+?)\)", "\n".join(lines), re.MULTILINE)
        yield {title: [{name: f"docs/{place}"} for name, place in links if place.endswith(".md")]}


def _settings(index: str) -> dict[str, Any]:
    sections = list(order(index))
    for section in sections:
        section.get("Reference", []).append({"Python": "docs/python.md"})
    sections[0]["Begin"].append({"Templates as they run": "docs/gallery.md"})
    options = {
        "show_source": False,
        "members_order": "source",
        "show_root_heading": True,
        "show_signature_annotations": True,
        "heading_level": 3,
    }
    return {
        "site_name": "LeMMing",
        "site_description": "An organisation of AI agents in a folder.",
        "docs_dir": "pages",
        "use_directory_urls": False,
        "nav": [{"LeMMing": "README.md"}, *sections, {"Changelog": "CHANGELOG.md"}],
        "theme": {
            "name": "material",
            "font": False,  # none is fetched: the site is read offline, too
            "features": ["content.code.copy", "navigation.footer", "navigation.top", "search.highlight"],
            "palette": [
                {"media": f"(prefers-color-scheme: {scheme})", "scheme": name}
                for scheme, name in (("light", "default"), ("dark", "slate"))
            ],
        },
        "markdown_extensions": [
            "tables",
            "pymdownx.superfences",
            "pymdownx.highlight",
            {"toc": {"permalink": True, "slugify": {"object": GITHUB_ANCHORS, "kwds": {"case": "lower"}}}},
        ],
        "plugins": [
            "search",
            "offline",
            {"mkdocstrings": {"handlers": {"python": {"paths": [str(REPOSITORY)], "options": options}}}},
        ],
    }


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    else:
        shutil.copy(source, target)


def _python() -> Iterator[str]:
    for title, modules in PYTHON.items():
        yield f"## {title}"
        yield from (f"::: {module}" for module in modules)


def _gallery(folder: Path) -> str:
    """Run every template whose answers are recorded, write its page beside it, return the page of links."""
    lines = ["# Templates as they run", "", "Each as `lemming init` makes it, after its first ticks.", ""]
    with tempfile.TemporaryDirectory() as place:
        for name in RECORDED:
            base = Path(place, name)
            run(lemming(Path(place), "init", str(base), "--template", name))
            run(lemming(base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0"))
            run(lemming(base, "report", "--html", str(folder / name)))
            purpose = json.loads((base / "config/org.json").read_bytes())["purpose"]
            lines += [f"## {name}", "", purpose, "", f"    lemming init {name} --template {name}", ""]
            lines += [f"[What it has done](gallery/{name}/index.html)", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
