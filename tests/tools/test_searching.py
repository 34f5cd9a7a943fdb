"""`file_search` and `search`: what they find, in which order, and that nothing hangs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.capabilities.toolbox.file_search import FILES_LIMIT
from lemming.kernel.tools import get_toolset

TOOLS = ["file_search", "search", "file_write"]
HANDBOOK = """# Handbook

Welcome.

## Invoices
An invoice is paid within thirty days.

```
# not a heading
```

## Holidays
Thirty days a year. Ask the office.
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk beside a shared folder with something to find."""
    desk = Desk(tmp_path / "org", tools=TOOLS)
    desk.write("shared/handbook.md", HANDBOOK)
    desk.write("shared/notes/b.txt", "the printer\nis on fire\n\nthe invoice of May\n")
    desk.write("agents/alpha/workspace/a.txt", "An INVOICE\n")
    desk.write("agents/beta/workspace/private.txt", "invoice of beta\n")
    return desk


# --- file_search --------------------------------------------------------------------------------


def test_lines_are_found_in_all_that_the_agent_may_read_and_nowhere_else(desk: Desk) -> None:
    assert desk.do("file_search", text="invoice", ignore_case=True).splitlines() == [
        "workspace/a.txt:1: An INVOICE",
        "shared/handbook.md:5: ## Invoices",
        "shared/handbook.md:6: An invoice is paid within thirty days.",
        "shared/notes/b.txt:4: the invoice of May",
    ]


def test_a_path_that_was_found_can_be_read_by_that_name(desk: Desk) -> None:
    found = desk.do("file_search", text="fire", path="shared")
    assert found == "shared/notes/b.txt:2: is on fire"
    assert desk.do("file_search", text="INVOICE", path=".") == "a.txt:1: An INVOICE"
    assert desk.do("file_search", text="INVOICE", path="workspace/a.txt") == "workspace/a.txt:1: An INVOICE"


def test_a_regular_expression_and_a_pattern_of_names(desk: Desk) -> None:
    assert desk.do("file_search", regex="^the (printer|office)", files="*.txt") == ("shared/notes/b.txt:1: the printer")


def test_what_the_turn_has_written_is_found(desk: Desk) -> None:
    desk.call("file_write", path="new.txt", content="fresh ink")
    assert desk.do("file_search", text="ink", path=".") == "new.txt:1: fresh ink"


def test_nothing_found_is_said(desk: Desk) -> None:
    assert desk.do("file_search", text="zebra", path="shared") == "(no such line in 2 files)"


def test_files_that_are_no_text_are_counted(desk: Desk) -> None:
    (desk.base / "shared/x.bin").write_bytes(b"\xff\x00")
    (desk.base / "shared/link.txt").symlink_to("handbook.md")
    assert desk.do("file_search", text="zebra", path="shared").splitlines() == [
        "(no such line in 2 files)",
        "[not searched: 2 that are no text files, or too large]",
    ]


def test_no_more_lines_than_asked_for(desk: Desk) -> None:
    desk.write("shared/many.txt", "x\n" * 5)
    assert desk.do("file_search", text="x", path="shared/many.txt", limit=2).splitlines() == [
        "shared/many.txt:1: x",
        "shared/many.txt:2: x",
        "[there are more than these 2 lines]",
    ]


def test_no_more_files_than_a_search_goes_through(desk: Desk) -> None:
    for number in range(FILES_LIMIT):
        desk.write(f"shared/a/{number:04}", "x")
    found = desk.do("file_search", text="Welcome", path="shared").splitlines()
    assert found == [
        "(no such line in 5000 files)",
        "[only the first 5000 files were searched: name a folder further down]",
    ]


def test_an_expression_that_hangs_others_ends_at_once(desk: Desk) -> None:
    desk.write("shared/evil.txt", "a" * 200_000 + "b\n")
    assert desk.do("file_search", regex="(a+)+c", path="shared/evil.txt") == "(no such line in 1 file)"


@pytest.mark.parametrize(
    ("regex", "why"),
    [("(", "unclosed group"), (r"(?<=a)b", "look-around"), (r"(a)\1", "backreferences"),
     ("a{999}{999}{99}", "multiply"), ("[z-a]", "invalid character class range"), ("*", "repetition")],
)  # fmt: skip
def test_a_broken_expression_is_explained(desk: Desk, regex: str, why: str) -> None:
    assert why in desk.refusal("file_search", regex=regex)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "give either text or regex"),
        ({"text": "a", "regex": "b"}, "give either text or regex"),
        ({"text": "a", "path": "agents/beta"}, "does not exist"),
        ({"text": "a", "path": "/etc"}, "refused by permissions"),
        ({"text": "a", "path": "shared/../config"}, "leads outside"),
        ({"text": "a", "path": "shared/none"}, "does not exist"),
        ({"text": "a" * 1001}, "at most 1000"),
        ({"regex": "a" * 201}, "at most 200"),
        ({"text": "a", "limit": 0}, "greater than or equal to 1"),
        ({"text": 5}, "text"),
    ],
)
def test_wrong_arguments_of_file_search_are_refused(desk: Desk, arguments: dict[str, object], why: str) -> None:
    assert why in desk.refusal("file_search", **arguments)


# --- search -------------------------------------------------------------------------------------


def places(output: str) -> list[str]:
    return [line.split(" ")[0] for line in output.splitlines() if not line.startswith(" ")]


def test_the_section_with_the_words_in_its_title_comes_first(desk: Desk) -> None:
    found = desk.do("search", query="invoices", **{"in": "shared"})
    assert places(found) == ["shared/handbook.md:5", "shared/notes/b.txt:4"]
    assert "Invoices\n  ## Invoices An invoice is paid within thirty days." in found


def test_words_are_found_in_their_other_forms_and_one_of_them_is_enough(desk: Desk) -> None:
    assert places(desk.do("search", query="holiday zebra")) == ["shared/handbook.md:12"]


def test_a_sharp_in_a_fence_is_no_heading(desk: Desk) -> None:
    assert places(desk.do("search", query="heading")) == ["shared/handbook.md:5"]


def test_equal_scores_are_in_the_order_of_path_and_place(desk: Desk) -> None:
    for name in ("b", "a"):
        desk.write(f"shared/same/{name}.txt", "walrus\n\nwalrus\n")
    assert places(desk.do("search", query="walrus")) == [
        "shared/same/a.txt:1", "shared/same/a.txt:3", "shared/same/b.txt:1", "shared/same/b.txt:3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", ['invoice" OR "', "invoice AND NOT", "title:invoice", "invoice*", "NEAR(invoice)", "^invoice -"]
)
def test_what_is_syntax_elsewhere_is_words_here(desk: Desk, query: str) -> None:
    assert "shared/handbook.md:5" in places(desk.do("search", query=query))


def test_a_query_without_a_word_is_refused(desk: Desk) -> None:
    assert desk.refusal("search", query='"*"') == "search: the query has no word"


def test_what_others_keep_for_themselves_is_not_found(desk: Desk) -> None:
    assert desk.do("search", query="beta") == "(nothing about that in 3 files)"


def test_the_folder_is_called_in(desk: Desk) -> None:
    desk.context()
    tool = get_toolset(desk.org)["search"]
    assert [*tool.parameters["properties"]] == ["query", "in", "limit"]
    assert "refused by permissions" in desk.refusal("search", query="x", **{"in": "/etc"})


def test_a_grant_that_leads_nowhere_keeps_nothing_else_from_being_found(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_read=["/no/such/folder", "./workspace"])
    desk.write("agents/alpha/workspace/a.txt", "walrus")
    assert places(desk.do("search", query="walrus"))[0] == "workspace/a.txt:1"
