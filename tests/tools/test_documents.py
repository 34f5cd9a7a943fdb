"""`read_document`: the text of documents, and words for those that cannot be read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_server import serving
from paper import archive, encrypted_pdf, pdf, word
from tool_desk import Desk

from lemming.capabilities.toolbox.toolbox_settings import HttpSettings
from lemming.kernel.org.config import OrgSettings

if missing := [name for name in ("pypdf", "mammoth", "markdownify") if find_spec(name) is None]:
    pytest.skip(f"could not import {', '.join(missing)}", allow_module_level=True)

PAGE = b"""<!DOCTYPE html><html><head><title>The page</title><style>p {color: red}</style></head>
<body><script>alert(1)</script><h2>Prices</h2><ul><li>Tea <b>2</b></li></ul>
<p>See <a href="/more">more</a> &amp; less.</p><img src="x.png" alt="a picture"></body></html>"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "org", tools=["read_document", "file_write", "http_get"])


def put(desk: Desk, name: str, content: bytes) -> str:
    (desk.workspace / name).write_bytes(content)
    return name


def test_a_pdf_is_text_page_by_page(desk: Desk) -> None:
    found = desk.do("read_document", path=put(desk, "a.pdf", pdf("Hello there", "Goodbye")))
    assert found.split() == ["[page", "1", "of", "2]", "Hello", "there", "[page", "2", "of", "2]", "Goodbye"]


def test_a_word_document_is_text(desk: Desk) -> None:
    assert desk.do("read_document", path=put(desk, "a.docx", word("First.", "Second."))) == "First.\n\nSecond."


def test_html_is_text_without_what_nobody_reads(desk: Desk) -> None:
    found = desk.do("read_document", path=put(desk, "a.html", PAGE))
    assert found == "The page\n\n## Prices\n\n* Tea **2**\n\nSee [more](/more) & less."


def test_a_page_that_the_turn_has_written_is_read(desk: Desk) -> None:
    desk.call("file_write", path="new.html", content="<p>fresh</p>")
    assert desk.call("read_document", path="new.html").output == "fresh"


def test_a_page_of_the_web_is_text_too(tmp_path: Path) -> None:
    with serving() as pages:
        host = f"127.0.0.1:{pages.port}"
        org = OrgSettings(extensions={"http": HttpSettings(hosts=[host], private_hosts=[host])})
        desk = Desk(tmp_path / "org", tools=["http_get"], org=org)
        pages.put("/", PAGE, "text/html; charset=utf-8")
        assert "## Prices\n\n* Tea **2**" in desk.do("http_get", url=pages.url())


def test_a_long_document_comes_in_parts(desk: Desk) -> None:
    put(desk, "a.docx", word(*(f"paragraph {number} " + "x" * 500 for number in range(100))))
    parts, part = [], 1
    while True:
        found = desk.do("read_document", path="a.docx", part=part)
        text, marked, _ = found.partition("\n[there is more: part ")
        parts.append(text)
        part += 1
        if not marked:
            break
    assert len(parts) == 3
    assert all(f"paragraph {number} " in "".join(parts) for number in range(100))
    assert desk.refusal("read_document", path="a.docx", part=9) == 'read_document: "a.docx" has no part 9'


def test_of_thousands_of_pages_no_more_are_read_than_a_part_holds(desk: Desk) -> None:
    put(desk, "a.pdf", pdf(*(f"page about {number}" for number in range(3_000))))
    found = desk.do("read_document", path="a.pdf")
    assert found.startswith("[page 1 of 3000]")
    assert found.endswith("[there is more: part 2]")


def bomb() -> bytes:
    return archive({"word/document.xml": b"a" * (80 << 20)})


def many() -> bytes:
    return archive({"word/document.xml": b"", **dict.fromkeys(map(str, range(6000)), b"")})


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("locked.pdf", lambda: encrypted_pdf("x"), "encrypted and opens with a password only"),
        ("cut.pdf", lambda: pdf("a", "b")[:200], "cannot be read"),
        ("noise.pdf", b"%PDF-1.4\n" + b"\xff" * 1000, "cannot be read: it is broken"),
        ("pictures.pdf", lambda: pdf("", ""), "none of its 2 pages holds text"),
        ("bomb.docx", bomb, "it unpacks to 83886080 bytes"),
        ("many.docx", many,
         "in 6001 files"),
        ("other.docx", lambda: archive({"a.txt": b"a"}), "is an archive, and no Word document"),
        ("torn.docx", lambda: word("a")[:300], "it is broken: BadZipFile"),
        ("bad.docx", lambda: archive({"word/document.xml": b"<a"}), "cannot be read"),
        ("deep.html", lambda: b"<div>" * 50_000 + b"x", "nested too deep"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1", "old Office file, to be saved as .docx"),
        ("a.rtf", b"{\\rtf1 a}", "it is RTF"),
        ("a.txt", b"plain", "it is plain text, for file_read"),
        ("a.png", b"\x89PNG\xff", "is no PDF, Word (.docx) or HTML document"),
        ("empty.pdf", b"", "is no PDF"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_in_words(
    desk: Desk, name: str, content: bytes | Callable[[], bytes], why: str
) -> None:
    made = content if isinstance(content, bytes) else content()  # when it runs, not when it is collected
    assert why in desk.refusal("read_document", path=put(desk, name, made))


@pytest.mark.long
def test_an_expansion_of_entities_is_no_bomb(desk: Desk) -> None:
    lol = '<!DOCTYPE z [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    files = {"word/document.xml": f"<?xml version='1.0'?>{lol}]><w>&j;</w>".encode()}
    assert "cannot be read" in desk.refusal("read_document", path=put(desk, "a.docx", archive(files)))


def test_a_document_beyond_the_limit_and_a_path_beyond_the_grants_are_refused(desk: Desk) -> None:
    with (desk.workspace / "large.pdf").open("wb") as file:
        file.truncate((32 << 20) + 1)
    assert "at most 33554432 can be read" in desk.refusal("read_document", path="large.pdf")
    assert "refused by permissions" in desk.refusal("read_document", path="/etc/passwd")


def test_without_the_packages_the_line_that_installs_them_is_told(tmp_path: Path) -> None:
    (tmp_path / "mammoth.py").write_text("raise ModuleNotFoundError('no', name='mammoth')")
    command = [sys.executable, "-P", "-m", "lemming.capabilities.toolbox.document_reader", "word", "1", "100"]
    ran = subprocess.run(command, input=b"", capture_output=True, env={"PYTHONPATH": str(tmp_path)}, check=True)
    assert ran.stdout == b'{"missing": "mammoth"}'
