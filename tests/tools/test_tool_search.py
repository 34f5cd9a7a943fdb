"""Deferred tools: which of an agent's tools are listed, and how the others are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from many_tools import ABOUTS, FILLERS, Said, many_tools, registered

from lemming.capabilities.toolbox.tool_search import TOOLS_LIMIT, ToolSearch, rank_tools
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.resume import AgentPermissions
from lemming.kernel.tools import Tool, ToolResult, get_toolset
from lemming.kernel.tools.listing import (
    ToolListing,
    describe_groups,
    estimate_tool_tokens,
    list_tools,
    load_found_tools,
)
from lemming.testing import make_org, resume

CONTEXT = 10_000
PATTERNS = ["desk.*", "post.*", "tank.*"]


@pytest.fixture(autouse=True, scope="module")
def _many() -> Iterator[None]:
    with registered():
        yield


def agent_with(*tools: str) -> Agent:
    return Agent(name="ada", title="Ada", instructions="x", permissions=AgentPermissions(tools=[*tools]))


def listing(*tools: str, share: float = 0.1, context: int = CONTEXT) -> ToolListing:
    agent = agent_with(*tools)
    allowed = get_toolset(OrgSettings()).allowed_tools(agent, OrgSettings())
    return list_tools(allowed, agent, context_tokens=context, share=share)


def names(tools: tuple[Tool, ...]) -> set[str]:
    return {tool.name for tool in tools if not tool.always_allowed}


# --- what is listed --------------------------------------------------------------------------------


def test_above_the_share_tools_of_patterns_give_way_to_the_search() -> None:
    found = listing(*PATTERNS)
    assert names(found.listed) == {"tool_search"}
    assert len(found.deferred) == len(ABOUTS) + FILLERS


def test_up_to_the_share_all_are_listed_and_there_is_no_search() -> None:
    size = estimate_tool_tokens(many_tools())
    found = listing(*PATTERNS, context=size, share=1.0)
    assert found.deferred == ()
    assert len(names(found.listed)) == len(ABOUTS) + FILLERS
    assert "tool_search" not in names(found.listed)
    assert listing(*PATTERNS, context=size - 1, share=1.0).deferred


def test_a_share_of_one_defers_nothing_that_fits_and_of_zero_everything() -> None:
    assert listing("desk.*", share=1.0).deferred == ()
    assert names(listing("desk.*", share=0.0).listed) == {"tool_search"}


def test_tools_named_one_by_one_and_those_that_ship_are_never_deferred() -> None:
    found = listing("file_*", "tank.fill_7", "post.track", *PATTERNS)
    assert {"tank.fill_7", "post.track", "file_read", "tool_search"} <= names(found.listed)
    assert not {"tank.fill_7", "post.track", "file_read"} & names(found.deferred)


def test_an_agent_without_patterns_has_no_search() -> None:
    assert names(listing("desk.create_issue", share=0.0).listed) == {"desk.create_issue"}
    assert "tool_search" not in get_toolset(OrgSettings()).allowed_tools(agent_with("post.track"), OrgSettings())


def test_one_that_names_the_search_has_it_always() -> None:
    assert names(listing("tool_search", "desk.*", share=1.0).listed) >= {"tool_search", "desk.closeIssue"}


def test_the_search_names_where_tools_come_from_largest_first() -> None:
    assert describe_groups(many_tools()) == f"tank ({FILLERS}), desk (3), post (2)"


def test_tools_of_a_server_are_named_by_their_server() -> None:
    of_servers = [Said(f"mcp.{name}", "x", {}) for name in ("github.a", "github.b", "jira.a")]
    assert describe_groups(of_servers) == "github (2), jira (1)"


def test_of_very_many_places_only_the_largest_are_named() -> None:
    places = describe_groups(Said(f"mcp.s{n}.a", "x", {}) for n in range(30))
    assert places.endswith("s19 (1), and others")


# --- what is found ---------------------------------------------------------------------------------


def found_by(query: str) -> list[str]:
    return rank_tools(many_tools(), query)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("issue create", "desk.create_issue"), ("closing issues", "desk.closeIssue"),
        ("where is my parcel", "post.track"), ("letters", "post.send_letter"),
        ("tank 7", "tank.fill_7"), ("subject repository list", "desk.list_issues"),
    ],
)  # fmt: skip
def test_words_find_the_tool_that_is_most_about_them(query: str, first: str) -> None:
    assert found_by(query)[0] == first


def test_equal_tools_come_in_the_order_of_their_names_whatever_the_order_they_are_in() -> None:
    tools = many_tools()
    ranked = rank_tools(tools, "level")
    assert ranked == sorted(ranked)
    assert rank_tools([*reversed(tools)], "level") == ranked


def test_quotes_and_operators_of_a_query_are_words() -> None:
    assert found_by('parcel" OR ( NEAR NOT *') == ["post.track"]


class Desk:
    """An agent that calls the search."""

    def __init__(self, base: Path, *tools: str) -> None:
        self.base = make_org(base, resume("ada", permissions={"tools": [*tools], "read_outboxes": []}))

    def search(self, **arguments: Any) -> ToolResult:
        return ToolSearch().execute("ada", self.base, **arguments)


def test_a_search_gives_signatures_and_keeps_short_schemas(tmp_path: Path) -> None:
    result = Desk(tmp_path / "org", *PATTERNS).search(query="open an issue")
    first = result.output.splitlines()[0]
    assert first == "desk.create_issue(subject?): Open a new issue in a repository."
    kept = load_found_tools(result.state)
    assert [tool["name"] for tool in kept] == [line.partition("(")[0] for line in result.output.splitlines()]
    assert kept[0]["parameters"] == {
        "type": "object",
        "properties": {"subject": {"type": "string", "description": "What it is about."}},
    }


def test_no_more_are_found_than_a_few(tmp_path: Path) -> None:
    result = Desk(tmp_path / "org", *PATTERNS).search(query="level")
    assert len(result.output.splitlines()) == len(load_found_tools(result.state)) == TOOLS_LIMIT


def test_only_tools_that_the_agent_may_call_are_found(tmp_path: Path) -> None:
    result = Desk(tmp_path / "org", "post.*").search(query="issue level parcel")
    assert [tool["name"] for tool in load_found_tools(result.state)] == ["post.track"]


def test_where_nothing_is_found_the_answer_names_where_tools_come_from(tmp_path: Path) -> None:
    result = Desk(tmp_path / "org", "post.*").search(query="weather")
    assert result.output == "No tool is about that. There are tools of: post (2)"
    assert not result.state


def test_a_search_needs_a_word_and_a_pattern(tmp_path: Path) -> None:
    assert "the query has no word" in Desk(tmp_path / "org", "post.*").search(query="...").output
    refused = Desk(tmp_path / "other", "post.track").search(query="parcel")
    assert "refused by permissions.tools" in refused.output
    with pytest.raises(PermissionDenied):
        ToolSearch().require_granted(agent_with("post.track"), OrgSettings())
