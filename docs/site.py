"""Builds the documentation as a site that is read and searched, also from disk: `make site`.

    python -m docs.site FOLDER

The pages keep their places, so that their links hold: the site is laid out as the repository is. What the
site has beside them is made here: the order of the pages, which follows their index, the reference of the
Python interface, out of its docstrings, and the templates as they run, each a page of its own. Where a page
stood before, the site leads to where its text stands now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lemming
from benchmarks.processes import LEMMING

REPOSITORY = Path(__file__).parent.parent
PAGES = ("README.md", "CHANGELOG.md", "LICENSE", "docs", "examples", "lemming/agent_skill")
RECORDED = ("desk", "research", "watch", "review", "game")
"""The templates whose answers are recorded, so that they run here without a model."""
PYTHON = {
    "Running": ("lemming.engine",),
    "Plans": ("lemming.building.plans",),
    "Files": ("lemming.agents", "lemming.messages", "lemming.memory"),
    "Extending": (
        "lemming.tools",
        "lemming.providers",
        "lemming.kernel.turn.seams",
        "lemming.kernel.tick.seams",
    ),
    "Testing": ("lemming.testing",),
}
MOVED = {
    "answers": "requests.html#structured-answers",
    "batches": "money.html#batches",
    "errors": "TROUBLESHOOTING.html#codes",
    "files-and-web": "tools.html#tools-that-ship",
    "findings": "checks.html#findings",
    "how-we-know": "compared.html#how-we-know",
    "import": "AGENT_GUIDE.html#agents-from-elsewhere",
    "judges": "strategies.html#judges",
    "loops": "concepts.html#loops",
    "one-file": "AGENT_GUIDE.html#an-organisation-in-one-file",
    "prompts": "models.html#what-a-model-is-asked",
    "rehearsal": "evals.html#rehearsal",
    "secrets": "security.html#secrets",
    "scale": "performance.html#several-organisations",
    "skills": "AGENT_GUIDE.html#guides-and-skills",
    "telemetry": "events.html#traces",
}
"""Pages that stand in others now. Their headings went with them, so an anchor that was asked for is kept."""
NOT_SOUGHT = (
    "CHANGELOG", "docs/README", "docs/architecture-guide", "docs/decisions", "docs/python",
    "examples/compared",
)  # fmt: skip
"""Pages that the search leaves out: what is history, and names in Python, which begin like many words."""
TICKS, WIDTH = 6, 84
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
            is_sought = not str(page.relative_to(pages)).startswith(NOT_SOUGHT)
            text = ("" if is_sought else "---\nsearch:\n  exclude: true\n---\n\n") + page.read_text("utf-8")
            page.write_text(as_the_generator_reads_it(text), "utf-8")
        index = (pages / "docs/README.md").read_text("utf-8")
        (work / "mkdocs.yml").write_text(json.dumps(_settings(index)), "utf-8")
        command = (sys.executable, "-m", "zensical", "build", "--strict")
        subprocess.run(command, cwd=work, check=True)
        for page in (work / "site").rglob("*.html"):
            page.write_text(fetching_nothing(page.read_text("utf-8")), "utf-8")
        for before, now in MOVED.items():
            (work / f"site/docs/{before}.html").write_text(_leading_to(now), "utf-8")
        shutil.copytree(work / "site", site, dirs_exist_ok=True)


def fetching_nothing(page: str) -> str:
    """Return a page that asks no other machine for a script. Raises ValueError where one is left."""
    code = (REPOSITORY / "docs/search_from_disk.js").read_text("utf-8")
    page = re.sub(
        r'<script src="https://[^"]*iframe-worker[^>]*></script>', f"<script>\n{code}</script>", page
    )
    if found := re.search(
        r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+\.(?:js|css|png|svg)"', page
    ):
        raise ValueError(f"a page of the site would fetch {found[0]}")
    return page


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


def _leading_to(place: str) -> str:
    page, _, anchor = place.partition("#")
    script = f'location.replace("{page}" + (location.hash || "#{anchor}"))'
    return (
        f'<!doctype html><title>moved</title><script>{script}</script><a href="{place}">It is here now.</a>\n'
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    else:
        shutil.copy(source, target)


def _python() -> Iterator[str]:
    yield "## What `import lemming` has"
    for name in lemming.__all__:
        if name != "__version__":
            home = getattr(lemming, name).__module__
            yield f"::: {home}.{name}\n    options:\n      heading: lemming.{name}"
    for title, modules in PYTHON.items():
        yield f"## {title}"
        yield from (f"::: {module}" for module in modules)


def _gallery(folder: Path) -> str:
    """Run every template whose answers are recorded, write its page beside it, return the page of links."""
    lines = [
        "# Templates as they run",
        "",
        "Each as `lemming init` makes it, with what its first ticks print.",
        "",
    ]
    with tempfile.TemporaryDirectory() as place:
        for name in RECORDED:
            base = Path(place, name)
            _ran(Path(place), "init", str(base), "--template", name)
            printed = _ran(base, "run-forever", "--max-ticks", str(TICKS), "--interval", "0")
            _ran(base, "report", "--html", str(folder / name))
            purpose = json.loads((base / "config/org.json").read_bytes())["purpose"]
            lines += [f"## {name}", "", purpose, "", f"    lemming init {name} --template {name}", ""]
            lines += ["```text", *_busy_ticks(printed), "```", ""]
            lines += [f"[Its page](gallery/{name}/index.html): agents, ticks, prompts, money, why.", ""]
    return "\n".join(lines)


def _busy_ticks(printed: str) -> Iterator[str]:
    """Yield the lines of the ticks in which somebody took a turn, as wide as a page of the site."""
    for tick in re.split(r"^(?=tick \d+$)", printed, flags=re.MULTILINE):
        if " done, " in tick:
            for line in tick.splitlines():
                yield line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _ran(base: Path, *words: str) -> str:
    """Run a command of the organisation at `base`, and return what it said to the person at the terminal."""
    plain = {**os.environ, "NO_COLOR": "1"}
    command = (*LEMMING, "-C", str(base), *words)
    return subprocess.run(command, env=plain, capture_output=True, text=True, check=True).stderr


if __name__ == "__main__":
    build(Path(sys.argv[1]))
