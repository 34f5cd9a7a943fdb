"""`http_get`, `http_post`: only servers that are named, only addresses that may be, and limits that hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_server import Pages, bomb, serving
from tool_desk import Desk

from lemming.capabilities.toolbox.toolbox_settings import HttpSettings, is_public, matches_host
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.tools import ToolResult, get_toolset

TOOLS = ["http_get", "http_post"]


@pytest.fixture
def pages() -> Iterator[Pages]:
    with serving() as pages:
        yield pages


def desk_with(tmp_path: Path, hosts: list[str], private: list[str] | None = None, **rules: float) -> Desk:
    http = HttpSettings(hosts=hosts, private_hosts=hosts if private is None else private, **rules)  # type: ignore[arg-type]
    return Desk(tmp_path / "org", tools=TOOLS, org=OrgSettings(extensions={"http": http}))


@pytest.fixture
def desk(pages: Pages, tmp_path: Path) -> Desk:
    """Return a desk from which the server may be asked under two names."""
    return desk_with(tmp_path, [f"127.0.0.1:{pages.port}", f"localhost:{pages.port}"], timeout_s=10, max_bytes=4096)


# --- what works ---------------------------------------------------------------------------------


def test_a_page_is_read(desk: Desk, pages: Pages) -> None:
    pages.put("/a", "grüß dich\n".encode(), "text/plain; charset=utf-8")
    assert desk.do("http_get", url=pages.url("/a")) == f"HTTP 200 OK, {pages.url('/a')}\n\ngrüß dich"


def test_a_page_in_another_character_set_is_text_too(desk: Desk, pages: Pages) -> None:
    pages.put("/a", "grüß dich".encode("latin-1"), 'text/plain; charset="iso-8859-1"')
    assert "grüß dich" in desk.do("http_get", url=pages.url("/a"))


def test_the_connection_goes_to_the_address_and_the_request_to_the_name(desk: Desk, pages: Pages) -> None:
    pages.put("/a", b"{}", "application/json")
    desk.do("http_get", url=pages.url("/a", host="localhost"))
    method, headers, _ = pages.asked[0]
    assert (method, headers["host"]) == ("GET /a", f"localhost:{pages.port}")
    assert "cookie" not in headers


def test_redirects_are_followed_to_the_end(desk: Desk, pages: Pages) -> None:
    pages.put("/a", b"", status=302, Location="/b?x=1")
    pages.put("/b?x=1", b"there")
    assert desk.do("http_get", url=pages.url("/a")).endswith("/b?x=1\n\nthere")


def test_a_packed_answer_is_unpacked(desk: Desk, pages: Pages) -> None:
    import gzip

    pages.put("/a", gzip.compress(b"inside"), Content_Encoding="gzip")
    assert desk.do("http_get", url=pages.url("/a")).endswith("\n\ninside")


def test_a_status_of_failure_is_a_failure_with_what_the_server_said(desk: Desk, pages: Pages) -> None:
    assert desk.refusal("http_get", url=pages.url("/none")) == (
        f"HTTP 404 Not Found, {pages.url('/none')}\n\nno such page"
    )


def test_json_and_text_are_sent_with_a_key_of_their_own(desk: Desk, pages: Pages) -> None:
    pages.put("/in", b"thanks", status=201)
    assert desk.do("http_post", url=pages.url("/in"), json={"a": [1]}).endswith("\n\nthanks")
    desk.do("http_post", url=pages.url("/in"), text="plain words")
    (_, first, one), (_, second, other) = pages.asked
    assert (one, first["content-type"]) == (b'{"a":[1]}', "application/json")
    assert (other, second["content-type"]) == (b"plain words", "text/plain; charset=utf-8")
    assert len(first["idempotency-key"]) == 32
    assert first["idempotency-key"] != second["idempotency-key"]


def test_the_same_call_made_again_has_the_same_key(desk: Desk, pages: Pages) -> None:
    pages.put("/in", b"", status=204)
    for _ in range(2):
        desk.calls = 7
        desk.do("http_post", url=pages.url("/in"), json=1)
    assert pages.asked[0][1]["idempotency-key"] == pages.asked[1][1]["idempotency-key"]


def test_a_post_follows_no_redirect_and_says_where_it_points(desk: Desk, pages: Pages) -> None:
    pages.put("/in", b"", status=303, Location="/seen")
    assert "it points to /seen, which was not followed" in desk.do("http_post", url=pages.url("/in"))
    assert len(pages.asked) == 1


# --- who may not be asked -----------------------------------------------------------------------


def test_without_hosts_there_is_no_such_tool(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS)
    agent = desk.context().agent
    assert "http_get" not in get_toolset(desk.org).allowed_tools(agent, desk.org)
    why = desk.refusal("http_get", url="https://example.org")
    assert "refused by config/org.json http.hosts []: no host is allowed" in why


def refused(desk: Desk, url: str) -> ToolResult:
    result = desk.call("http_get", url=url)
    assert not result.success
    return result


def test_a_host_that_is_not_named_is_not_asked(desk: Desk, pages: Pages) -> None:
    result = refused(desk, "https://example.org/")
    assert "example.org refused by config/org.json http.hosts (allowed: 127.0.0.1:" in result.output
    assert result.outcome == "refused"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_a_name_that_leads_to_this_machine_is_not_asked(host: str, pages: Pages, tmp_path: Path) -> None:
    bare = host.strip("[]")
    desk = desk_with(tmp_path, [f"{bare}:{pages.port}", f"{host}:{pages.port}", "127.0.0.1"], private=[])
    result = refused(desk, pages.url(host=host))
    assert result.outcome in ("refused", "failed")
    assert "no public address" in result.output or "cannot be resolved" in result.output or "refused" in result.output
    assert pages.asked == []


def test_a_redirect_to_what_may_not_be_asked_is_not_followed(pages: Pages, tmp_path: Path) -> None:
    here = f"127.0.0.1:{pages.port}"
    desk = desk_with(tmp_path, [here, f"localhost:{pages.port}"], private=[here])
    pages.put("/away", b"", status=302, Location="http://169.254.169.254/latest/meta-data")
    pages.put("/home", b"", status=307, Location=pages.url("/secret", host="localhost"))
    pages.put("/file", b"", status=302, Location="file:///etc/passwd")
    pages.put("/secret", b"secret")
    assert "169.254.169.254 refused by config/org.json http.hosts" in refused(desk, pages.url("/away")).output
    assert "which is no public address" in refused(desk, pages.url("/home")).output
    assert "begins with https:// or http://" in refused(desk, pages.url("/file")).output
    assert [asked for asked, *_ in pages.asked] == ["GET /away", "GET /home", "GET /file"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://127.0.0.1/", "begins with https:// or http://"),
        ("file:///etc/passwd", "begins with https:// or http://"),
        ("127.0.0.1", "begins with https:// or http://"),
        ("http://", "begins with https:// or http://"),
        ("http://user:pass@127.0.0.1:PORT/", "user or a password"),
        ("http://127.0.0.1:99999/", "refused by config/org.json http.hosts"),
        ("http://127.0.0.1:1/", "refused by config/org.json http.hosts"),
        ("http://exa mple.org/", "refused by config/org.json http.hosts"),
        ("http://127.0.0.1:PORT/\r\nX: y", "InvalidURL"),
        ("http://127.0.0.1:PORT@evil.org/", "user or a password"),
        ("x" * 4001, "at most 4000"),
    ],
)
def test_an_address_that_is_none_is_refused_in_words(desk: Desk, pages: Pages, url: str, why: str) -> None:
    assert why in refused(desk, url.replace("PORT", str(pages.port))).output
    assert pages.asked == []


# --- limits -------------------------------------------------------------------------------------


def test_a_long_answer_is_cut(desk: Desk, pages: Pages) -> None:
    pages.put("/a", b"y" * 5000)
    assert desk.do("http_get", url=pages.url("/a")).endswith("y\n[cut: only the first 4096 bytes were taken]")


def test_an_answer_that_unpacks_to_a_gigabyte_takes_no_gigabyte(desk: Desk, pages: Pages) -> None:
    pages.put("/a", bomb(64), Content_Encoding="gzip")
    assert "only the first 4096 bytes" in desk.do("http_get", url=pages.url("/a"))


@pytest.mark.parametrize("path", ["/silent", "/drip"])
def test_an_answer_that_does_not_end_ends_with_its_time(path: str, pages: Pages, tmp_path: Path) -> None:
    desk = desk_with(tmp_path, [f"127.0.0.1:{pages.port}"], timeout_s=0.3)
    assert refused(desk, pages.url(path)).output == "http_get: no answer within 0.3 s"


@pytest.mark.parametrize("path", ["/silent", "/gone"])
def test_of_a_post_without_an_answer_nobody_knows(path: str, pages: Pages, tmp_path: Path) -> None:
    for timeout_s in (0.3, 3, 15):  # on a busy machine the first may be over before anything is sent
        desk = desk_with(tmp_path, [f"127.0.0.1:{pages.port}"], timeout_s=timeout_s)
        result = desk.call("http_post", url=pages.url(path), json={})
        if result.outcome != "failed" or pages.asked:
            break
    assert result.outcome == "interrupted"
    assert "may or may not have happened" in result.output


def test_of_a_post_that_reached_nobody_it_is_known(tmp_path: Path) -> None:
    with serving() as pages:
        url, host = pages.url("/in"), f"127.0.0.1:{pages.port}"
    assert desk_with(tmp_path, [host]).call("http_post", url=url, json={}).outcome == "failed"


def test_redirects_in_a_circle_come_to_an_end(desk: Desk, pages: Pages) -> None:
    pages.put("/a", b"", status=302, Location="/a")
    assert "more than 5 redirects" in refused(desk, pages.url("/a")).output
    assert len(pages.asked) == 6


@pytest.mark.parametrize("kind", ["image/png", "application/zip", "application/octet-stream"])
def test_what_is_no_text_is_not_shown(desk: Desk, pages: Pages, kind: str) -> None:
    pages.put("/a", b"\x89PNG", kind)
    assert f"the answer is {kind}, which is no text" in refused(desk, pages.url("/a")).output


def test_a_packing_that_was_not_asked_for_is_refused(desk: Desk, pages: Pages) -> None:
    pages.put("/a", b"abc", Content_Encoding="br")
    assert 'packed as "br"' in refused(desk, pages.url("/a")).output
    pages.put("/b", b"abc", Content_Encoding="gzip")
    assert "header" in refused(desk, pages.url("/b")).output


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
     "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1",
     "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1", "::ffff:8.8.8.8", "2002:7f00:1::",
     "64:ff9b::7f00:1", "fec0::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
)  # fmt: skip
def test_an_address_that_is_not_public_is_none(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:2800:220:1:248:1893:25c8:1946"])
def test_a_public_address_is_one(address: str) -> None:
    assert is_public(address)


def test_a_pattern_names_hosts_below_and_not_beside() -> None:
    assert matches_host("a.b.example.org", 443, ["*.example.org"])
    assert not matches_host("badexample.org", 443, ["*.example.org"])
    assert not matches_host("example.org", 443, ["*.example.org"])
    assert matches_host("EXAMPLE.org.", 80, ["example.org"])
    assert not matches_host("example.org", 8443, ["example.org"])
    assert matches_host("example.org", 8443, ["example.org:8443"])


@pytest.mark.parametrize("host", ["https://a.org", "*", "a b", "a.org:x", "a.org:0", "", "*.*.org", "u@a.org"])
def test_a_pattern_that_names_no_host_is_an_error_of_the_settings(host: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org")
    desk.write("config/org.json", f'{{"http": {{"hosts": ["{host}"]}}}}')
    with pytest.raises(ConfigError, match="http"):
        load_config(desk.base)
