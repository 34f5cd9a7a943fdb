"""Build the documentation site, searchable online and from disk: `make site`.

    python -m docs.site FOLDER

The site has the layout of the repository, so relative links stay valid. Generated parts are the page order
(from the index), the Python reference (from docstrings), and a page for each template run. Former pages
redirect to the current page of their text.
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
RECORDED_TEMPLATES = ("desk", "research", "watch", "review", "game")
"""The templates whose answers are recorded, so that they run here without a model."""
REFERENCE_MODULES = {
    "Running": ("lemming.engine",),
    "Plans": ("lemming.capabilities.plans.plan_builder",),
    "Files": ("lemming.agents", "lemming.messages", "lemming.memory"),
    "Extending": (
        "lemming.tools",
        "lemming.providers",
        "lemming.kernel.turn.turn_hooks",
    ),
    "Testing": ("lemming.testing",),
}
REDIRECTS = {
    "answers": "requests.html#structured-answers",
    "approvals": "gates.html#approvals",
    "batches": "models.html#batches",
    "checks": "TROUBLESHOOTING.html#checks-and-findings",
    "dashboard": "operations.html#dashboard",
    "decisions/README": "decisions.html#decisions",
    "errors": "TROUBLESHOOTING.html#codes",
    "evals": "history.html#evals-and-rehearsals",
    "files-and-web": "tools.html#tools-that-ship",
    "findings": "TROUBLESHOOTING.html#findings",
    "glossary": "concepts.html#glossary",
    "how-we-know": "compared.html#how-we-know",
    "import": "AGENT_GUIDE.html#agents-from-elsewhere",
    "judges": "plans.html#judges",
    "loops": "concepts.html#loops",
    "mcp": "tools.html#mcp",
    "money": "models.html#money",
    "one-file": "AGENT_GUIDE.html#an-organisation-in-one-file",
    "prompts": "models.html#what-a-model-is-asked",
    "rehearsal": "history.html#rehearsal",
    "renamed": "capabilities.html#names-of-020",
    "resume": "settings.html#the-resume",
    "scale": "performance.html#several-organisations",
    "secrets": "security.html#secrets",
    "skills": "AGENT_GUIDE.html#guides-and-skills",
    "strategies": "plans.html#strategies-and-judges",
    "telemetry": "events.html#traces",
    "time": "settings.html#time",
    "trust": "security.html#trust",
}
"""Pages that stand in others now. Their headings went with them, so an anchor that was asked for is kept."""
UNSEARCHED_PAGES = (
    "CHANGELOG", "docs/README", "docs/architecture-guide", "docs/decisions", "docs/python",
    "examples/compared",
)  # fmt: skip
"""Pages that the search leaves out: what is history, and names in Python, which begin like many words."""
TEMPLATE_TICKS, LINE_WIDTH = 6, 84
GITHUB_ANCHORS = "pymdownx.slugs.slugify"
"""Makes the anchors of headings as GitHub does, so that one link holds in both places."""


def build_site(site: Path) -> None:
    """Write the site into an empty or new folder. A broken link ends the build."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pages = work / "pages"
        for name in PAGES:
            _copy_path(REPOSITORY / name, pages / name)
        (pages / "docs/gallery.md").write_text(_build_gallery(pages / "docs/gallery"), "utf-8")
        (pages / "docs/python.md").write_text("\n\n".join(["# Python", *_render_reference()]) + "\n", "utf-8")
        for page in pages.rglob("*.md"):
            is_searchable = not str(page.relative_to(pages)).startswith(UNSEARCHED_PAGES)
            text = ("" if is_searchable else "---\nsearch:\n  exclude: true\n---\n\n") + page.read_text("utf-8")
            page.write_text(adapt_markdown(text), "utf-8")
        index = (pages / "docs/README.md").read_text("utf-8")
        (work / "mkdocs.yml").write_text(json.dumps(_make_settings(index)), "utf-8")
        command = (sys.executable, "-m", "zensical", "build", "--strict")
        subprocess.run(command, cwd=work, check=True)
        for page in (work / "site").rglob("*.html"):
            page.write_text(inline_scripts(page.read_text("utf-8")), "utf-8")
        for old_page, new_address in REDIRECTS.items():
            file = work / f"site/docs/{old_page}.html"
            file.parent.mkdir(exist_ok=True)
            file.write_text(_render_redirect("../" * old_page.count("/") + new_address), "utf-8")
        shutil.copytree(work / "site", site, dirs_exist_ok=True)


def inline_scripts(page: str) -> str:
    """Return a page without external resources.

    Raises: ValueError for a remaining external resource.
    """
    code = (REPOSITORY / "docs/search_from_disk.js").read_text("utf-8")
    page = re.sub(r'<script src="https://[^"]*iframe-worker[^>]*></script>', f"<script>\n{code}</script>", page)
    if match := re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+\.(?:js|css|png|svg)"', page):
        raise ValueError(f"a page of the site would fetch {match[0]}")
    return page


def adapt_markdown(page: str) -> str:
    """Adapt a Markdown page to Python-Markdown.

    The info string of a code block becomes a single word, and a list gets an empty line in front.

    >>> adapt_markdown(chr(10).join(["Two:", "- a"])).splitlines()
    ['Two:', '', '- a']
    """
    blocks = re.split(r"(^```.*?^```)", page, flags=re.DOTALL | re.MULTILINE)
    prose = [re.sub(r"(^(?![-*] |\d+\. |\s).+\n)(?=[-*] |1\. )", r"\1\n", text, flags=re.M) for text in blocks[::2]]
    code = [re.sub(r"^```(\w+) .*", r"```\1", text) for text in blocks[1::2]]
    return "".join(segment for pair in zip(prose, [*code, ""], strict=True) for segment in pair)


def parse_navigation(index: str) -> Iterator[dict[str, list[Any]]]:
    """Yield the sections of the index, each with pages in order, as paths in the site."""
    for section in re.split(r"^## ", index.partition("## For coding agents")[0], flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        links = re.findall(r"^- \[(.+?)\]\((.+?)\)", "\n".join(lines), re.MULTILINE)
        yield {title: [{name: f"docs/{page_path}"} for name, page_path in links if page_path.endswith(".md")]}


def _make_settings(index: str) -> dict[str, Any]:
    sections = list(parse_navigation(index))
    for section in sections:
        section.get("Reference", []).append({"Python": "docs/python.md"})
    sections[0]["Begin"].append({"Templates as they run": "docs/gallery.md"})
    options = {
        "show_source": False,
        "members_order": "source",
        "show_root_heading": True,
        "show_signature_annotations": True,
        "heading_level": 3,
        "extensions": [str(REPOSITORY / "docs/doctest_fences.py")],
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


def _render_redirect(address: str) -> str:
    page, _, anchor = address.partition("#")
    script = f'location.replace("{page}" + (location.hash || "#{anchor}"))'
    return f'<!doctype html><title>moved</title><script>{script}</script><a href="{address}">It is here now.</a>\n'


def _copy_path(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    else:
        shutil.copy(source, target)


def _render_reference() -> Iterator[str]:
    yield "## What `import lemming` has"
    for name in lemming.__all__:
        if name != "__version__":
            module_name = getattr(lemming, name).__module__
            yield f"::: {module_name}.{name}\n    options:\n      heading: lemming.{name}"
    for title, modules in REFERENCE_MODULES.items():
        yield f"## {title}"
        yield from (f"::: {module}" for module in modules)


def _build_gallery(folder: Path) -> str:
    """Run every template with recorded answers, write a report for each, and return the page of links."""
    lines = ["# Templates as they run", "", "Each as `lemming init` makes it, with what its first ticks print.", ""]
    with tempfile.TemporaryDirectory() as temporary:
        for name in RECORDED_TEMPLATES:
            base = Path(temporary, name)
            _run_command(Path(temporary), "init", str(base), "--template", name)
            printed = _run_command(base, "run-forever", "--max-ticks", str(TEMPLATE_TICKS), "--interval", "0")
            _run_command(base, "report", "--output", str(folder / name))
            purpose = json.loads((base / "config/org.json").read_bytes())["purpose"]
            lines += [f"## {name}", "", purpose, "", f"    lemming init {name} --template {name}", ""]
            lines += ["```text", *_extract_active_ticks(printed), "```", ""]
            lines += [f"[Its page](gallery/{name}/index.html): agents, ticks, prompts, money, why.", ""]
    return "\n".join(lines)


def _extract_active_ticks(output: str) -> Iterator[str]:
    """Yield the lines of ticks with a turn, cut to the page width of the site."""
    for tick in re.split(r"^(?=tick \d+$)", output, flags=re.MULTILINE):
        if " done, " in tick:
            for line in tick.splitlines():
                yield line if len(line) <= LINE_WIDTH else line[: LINE_WIDTH - 1] + "…"


def _run_command(base: Path, *arguments: str) -> str:
    """Run a command of the organisation at `base` and return its standard error."""
    environment = {**os.environ, "NO_COLOR": "1"}
    command = (*LEMMING, "-C", str(base), *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr


if __name__ == "__main__":
    build_site(Path(sys.argv[1]))
