"""What the documents show is true: examples parse, links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator

from docs.site import REDIRECTS, adapt_markdown, build_site, inline_scripts, parse_navigation
from lemming.capabilities.skills.skill import parse_skill
from lemming.cli import _split_root_option, load_command, run
from lemming.commands.command_table import find_command
from lemming.kernel.base.errors import UsageError
from lemming.queries.format_schemas import FORMATS, get_schema

ROOT = Path(__file__).parent.parent
SKILL = ROOT / "lemming/agent_skill/lemming-organisations/SKILL.md"
PAGES = [ROOT / "README.md", SKILL, *sorted((ROOT / "docs").rglob("*.md"))]
CHANGELOG = ROOT / "CHANGELOG.md"
EXAMPLE_PAGES = sorted((ROOT / "examples").glob("*/README.md"))
TEMPLATES = sorted((ROOT / "lemming/templates").glob("*/README.md"))
COMMANDS = sorted(
    {
        line
        for page in [*PAGES, *TEMPLATES]
        for block in re.findall(r"^```sh\n(.*?)^```|((?:^ {4}[^\n]+\n)+)", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in "".join(block).replace("\\\n", " ").splitlines()
        if re.match(r" *lemming [a-z-]", line)
    }
)
EXAMPLE = re.compile(r"^```json (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(name, text, id=f"{page.stem}-{name}-{number}")
    for page in PAGES
    for number, (name, text) in enumerate(EXAMPLE.findall(page.read_text()))
]


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_satisfies_the_schema_of_its_format(name: str, text: str) -> None:
    Draft202012Validator(get_schema(name)).validate(json.loads(text))


def test_every_format_has_an_example() -> None:
    assert {parameters.values[0] for parameters in EXAMPLES} == set(FORMATS)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(get_schema(name))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {heading.strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG, *EXAMPLE_PAGES], ids=lambda page: page.name)
def test_anchors_in_links_are_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#]*)#([^)]+)\)", page.read_text()):
        assert anchor in anchors_of(page.parent / target if target else page), f"{target}#{anchor}"


def test_the_site_has_every_page_in_the_order_of_the_index() -> None:
    sections = parse_navigation((ROOT / "docs/README.md").read_text())
    listed = [page for section in sections for pages in section.values() for page in pages]
    places = [place for page in listed for place in page.values()]
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - {"docs/README.md"}
    assert set(places) == pages
    assert places[0] == "docs/tutorial.md"


def test_a_page_for_the_site_keeps_its_words_and_its_blocks() -> None:
    page = "Two:\n- a\n- b\n\n```json turn\n{}\n```\n1. c\n2. d\n"
    read = adapt_markdown(page)
    assert read == "Two:\n\n- a\n- b\n\n```json\n{}\n```\n1. c\n2. d\n"


@pytest.mark.parametrize(("before", "now"), REDIRECTS.items())
def test_a_page_that_was_moved_leads_to_where_it_stands_now(before: str, now: str) -> None:
    page, _, anchor = now.partition(".html#")
    assert not (ROOT / f"docs/{before}.md").exists()
    assert anchor in anchors_of(ROOT / f"docs/{page}.md")


@pytest.mark.long
def test_the_site_is_built_without_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the site's generator is not installed: make site")
    build_site(tmp_path / "site")
    assert (tmp_path / "site/docs/python.html").exists()


def test_no_page_of_the_site_fetches_a_script() -> None:
    shim = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'
    assert "https://" not in inline_scripts(shim)
    with pytest.raises(ValueError, match="would fetch"):
        inline_scripts('<script src="https://example.org/more.js"></script>')


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG, *EXAMPLE_PAGES], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_a_page_that_the_code_names_is_there() -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "lemming").rglob("*.py")))
    named = set(re.findall(r"\bdocs/([\w/-]+)\.md", sources))
    assert len(named) > 15
    assert [page for page in sorted(named) if not (ROOT / f"docs/{page}.md").exists()] == []


def test_what_the_architecture_page_names_is_there_and_it_names_every_capability() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    roots = (ROOT, ROOT / "lemming", ROOT / "lemming/capabilities", ROOT / "lemming/kernel")
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []
    folders = {path.parent.name for path in roots[2].glob("*/__init__.py")}
    assert [name for name in sorted(folders) if f"`{name}`" not in page] == []


def test_every_page_is_in_the_index_once() -> None:
    index = (ROOT / "docs/README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", index)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page: links.count(page) for page in pages} == dict.fromkeys(pages, 1)


def test_the_list_for_models_has_every_page_on_one_line() -> None:
    lines = (ROOT / "docs/llms.txt").read_text().splitlines()
    assert (lines[0], lines[2][:2]) == ("# LeMMing", "> ")
    entries = [line for line in lines[4:] if line and not line.startswith("## ")]
    assert len(entries) > 25
    assert [line for line in entries if not re.match(r"- \[.+\]\(\S+\): \S", line)] == []


def test_every_command_that_is_shown_can_be_typed() -> None:
    assert len(COMMANDS) > 200
    wrong = {}
    for line in COMMANDS:
        for words in _commands_in(line):
            try:
                name, rest, _ = find_command(words)
                _parse(load_command(name), [name, *rest])
            except (typer.TyperException, UsageError, ModuleNotFoundError) as error:
                wrong[line.strip()] = str(error)
    assert wrong == {}


def _commands_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each `lemming` command of a line of shell, without `-C DIR`."""
    parts = shlex.shlex(line, posix=True, punctuation_chars=True)
    parts.whitespace_split = True
    words: list[str] = []
    for word in [*parts, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
            continue
        if words[:1] == ["lemming"]:
            _, rest = _split_root_option(words[1:])
            if rest and not rest[0].startswith("-"):
                yield rest
        words = []


def _parse(command: Any, words: list[str]) -> None:
    """Parse a command of a noun or a verb as it was typed; nothing is done."""
    context = command.make_context(words[0], words[1:], obj=None, resilient_parsing=False)
    rest = [*getattr(context, "_protected_args", []), *context.args]
    if hasattr(command, "commands") and rest:
        inner = command.commands.get(rest[0])
        if inner is None:
            raise UsageError(f"there is no {' '.join(words)}")
        _parse(inner, rest)


def test_the_skill_for_coding_agents_is_in_order() -> None:
    skills_ref = pytest.importorskip("skills_ref", reason="the reference validator is not installed")
    assert skills_ref.validate(SKILL.parent) == []
    assert parse_skill("skills/lemming-organisations", SKILL.read_text()).remarks == ()


def test_the_skill_is_written_to_where_coding_agents_look(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(["skills", "export", str(tmp_path / ".claude/skills")]) == 0
    written = tmp_path / ".claude/skills/lemming-organisations/SKILL.md"
    assert written.read_text() == SKILL.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_fit_a_screen(page: Path) -> None:
    if page.name == "architecture-guide.md":  # the contract, which is kept as it was given
        return
    without_code = re.sub(r"\A---.*?^---|^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in without_code.splitlines() if line[:1] != "|" and line[:4].strip()]
    assert [line for line in lines if len(line) > 160] == []
