"""The mail channel, with a real IMAP and a real SMTP server: once each, in its conversation, and no loops."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from channel_polls import poll_once
from doorway import answer_to, arrived, noted, with_channel
from mail_servers import BOX, PASSWORD, UNREADABLE, USER, Imap, imap_server, mail, smtp_server

from lemming.capabilities.channels.email_parser import extract_html_text, get_message_id, parse_mail
from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import Crash, FrozenClock, crash_at


@pytest.fixture(scope="module")
def server() -> Iterator[Imap]:
    with imap_server() as imap:
        yield imap


@pytest.fixture
def post(server: Imap, monkeypatch: pytest.MonkeyPatch) -> Imap:
    """The mailbox, empty."""
    monkeypatch.setenv("POST_PASSWORD", PASSWORD)
    server.empty()
    return server


def with_mail(base: Path, post: Imap, **more: Any) -> Path:
    options = {
        "address": USER,
        "to": "desk",
        "imap_host": "127.0.0.1",
        "imap_port": post.port,
        "imap_encryption": "none",
        "password_env": "POST_PASSWORD",
        "mailbox": BOX,
        "smtp_encryption": "none",
    }
    return with_channel(base, {**options, **more}, provider="mail")


def look_at(base: Path, clock: Any = None) -> list[str]:
    """Look once, as `lemming channels serve` does, and return what is told."""
    told: list[str] = []
    poll_once(Organisation(base), (clock or SystemClock()).now, lambda problem: told.append(str(problem)))
    return told


def test_a_mail_is_one_entry_however_often_it_is_there(base: Path, post: Imap) -> None:
    with_mail(base, post)
    post.put(mail(), mail())
    look_at(base)
    post.unmark()
    look_at(base)
    [entry] = arrived(base)
    assert entry.payload == {
        "text": "Hello?",
        "target": "desk",
        "from": "ada@far.example",
        "channel": "mail",
        "message_id": "<m-1@far.example>",
        "subject": "A question",
        "conversation": "<m-1@far.example>",
    }
    assert post.unseen() == 0


def test_a_mail_is_marked_only_after_its_entry_is_written(base: Path, post: Imap) -> None:
    with_mail(base, post)
    post.put(mail())
    for number in range(1, 40):
        try:
            with crash_at(number):
                look_at(base)
            break
        except Crash:
            assert arrived(base) or post.unseen() == 1
    assert len(arrived(base)) == 1
    assert post.unseen() == 0


def test_an_answer_goes_to_who_wrote_and_stays_in_the_conversation(base: Path, post: Imap) -> None:
    with smtp_server() as out:
        with_mail(base, post, smtp_host="127.0.0.1", smtp_port=out.port, user="", password_env="")
        with_mail(base, post, smtp_host="127.0.0.1", smtp_port=out.port)
        post.put(mail(References="<m-0@far.example>", In_Reply_To="<m-0@far.example>"))
        models = base / "config/models.json"
        look_at(base)
        run_once(base, clock=FrozenClock())
        answer_to(base, arrived(base)[0], "Rain, and later sun.")
        run_once(base, clock=FrozenClock())
        models.write_text(models.read_text().replace('"POST_PASSWORD"', '""'))  # this SMTP server knows no users
        look_at(base)
        look_at(base)
    [sent] = out.mails
    assert arrived(base)[0].payload["conversation"] == "<m-0@far.example>"
    assert sent["To"] == "ada@far.example"
    assert sent["From"] == USER
    assert sent["Subject"] == "Re: A question"
    assert sent["In-Reply-To"] == "<m-1@far.example>"
    assert sent["References"] == "<m-0@far.example> <m-1@far.example>"
    assert sent["Auto-Submitted"] == "auto-replied"
    assert sent.get_content().strip() == "Rain, and later sun."


def test_a_mail_that_is_not_taken_now_goes_out_later_under_the_same_id(base: Path) -> None:
    clock = FrozenClock()
    with smtp_server("451 later") as out:
        with_channel(
            base,
            {
                "address": USER,
                "smtp_host": "127.0.0.1",
                "smtp_port": out.port,
                "smtp_encryption": "none",
                "allow_to": ["@far.example"],
            },
            provider="mail",
        )
        run_once(base, clock=clock)
        for to in ("ada@far.example", "boss@elsewhere.example"):
            payload = {"text": "News.", "target": "door", "to": to}
            write_person_entry(base, "desk", tick=1, kind="message", payload=payload, tags=[], created_at="")
        look_at(base, clock)
        clock.advance(30)
        look_at(base, clock)
        clock.advance(60)
        look_at(base, clock)
    told = [line["did"] for line in noted(base)]
    assert sorted(told) == ["delivered", "failed", "gave_up"]
    assert [line["why"] for line in noted(base) if line["did"] == "gave_up"] == [
        'recipient boss@elsewhere.example is not in "allow_to" of the channel'
    ]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (mail(Auto_Submitted="auto-replied"), "the mail was sent by a program (Auto-Submitted)"),
        (mail(From=USER), "the mail comes from the channel's own address"),
        (mail(List_Id="<news.far.example>"), "the mail comes from a mailing list"),
        (mail(Precedence="bulk"), "the mail comes from a mailing list"),
        (mail(From=""), "the mail has no sender"),
    ],
    ids=["automatic", "own", "list", "bulk", "nobody"],
)
def test_what_could_make_a_loop_is_refused(base: Path, post: Imap, refused: EmailMessage, why: str) -> None:
    with_mail(base, post)
    post.put(refused)
    look_at(base)
    assert arrived(base) == []
    assert [line["why"].startswith(why) for line in noted(base)] == [True]
    assert post.unseen() == 0


def test_strangers_are_refused_where_only_some_may_write(base: Path, post: Imap) -> None:
    with_mail(base, post, allow_from=["@far.example"])
    post.put(mail(), mail(From="eve@near.example", Message_ID="<e@near.example>"))
    look_at(base)
    assert [entry.payload["from"] for entry in arrived(base)] == ["ada@far.example"]


def test_html_is_read_as_text_and_attachments_are_kept_within_limits(base: Path, post: Imap) -> None:
    with_mail(base, post, max_attachment_bytes=1000)
    sent = mail()
    sent.set_content("<html><style>p{}</style><p>Hello <b>there</b></p><script>x()</script>", subtype="html")
    sent.add_attachment(b"small", maintype="application", subtype="pdf", filename="../../plan.pdf")
    sent.add_attachment(b"x" * 2000, maintype="application", subtype="zip", filename="big.zip")
    post.put(sent)
    look_at(base)
    [entry] = arrived(base)
    [kept] = entry.payload["files"]
    assert entry.payload["text"] == "Hello there"
    assert (base / kept).read_bytes() == b"small"
    assert kept.startswith("agents/door/workspace/mail/")
    assert kept.endswith("/plan.pdf")
    assert entry.payload["left_out"] == ["big.zip (2,000 bytes)"]


def test_odd_and_huge_mails_do_not_stop_the_others(base: Path, post: Imap) -> None:
    with_mail(base, post, max_bytes=5000)
    head = b"From: \xff\xfe <a@b\r\nSubject: =?utf-8?q?=ZZ?=\r\n"
    odd = head + b"Content-Type: text/plain; charset=none-such\r\n\r\n\xff\r\n"
    post.put(mail("x" * 9000, Message_ID="<big@far.example>"), odd, mail(Message_ID="<last@far.example>"))
    look_at(base)
    texts = {str(entry.payload["text"]) for entry in arrived(base)}
    assert texts == {"\ufffd", "Hello?"}
    assert [line["why"] for line in noted(base) if line["did"] == "refused"] != []
    assert post.unseen() == 0


def test_a_sender_of_too_much_waits_and_loses_nothing(base: Path, post: Imap) -> None:
    clock = FrozenClock()
    with_mail(base, post, per_sender_an_hour=2)
    post.put(*(mail(Message_ID=f"<m-{number}@far.example>") for number in range(3)))
    look_at(base, clock)
    assert (len(arrived(base)), post.unseen()) == (2, 1)
    clock.advance(3601)
    look_at(base, clock)
    assert (len(arrived(base)), post.unseen()) == (3, 0)


def test_a_server_that_is_down_is_tried_again_later(base: Path, post: Imap) -> None:
    clock = FrozenClock()
    with_mail(base, post, imap_port=1)
    assert "unreachable" in look_at(base, clock)[0]
    look_at(base, clock)
    assert [line["did"] for line in noted(base)] == ["down"]
    clock.advance(11)
    look_at(base, clock)
    assert [line["did"] for line in noted(base)] == ["down", "down"]


def test_markup_that_is_wrong_is_read_as_far_as_it_goes() -> None:
    assert extract_html_text("<p>one<p>two <a href=x>three</a><br>&amp; four <script>no") == "one\ntwo three\n& four"
    page = "<!doctype html>5 < 6 <!-- <b>no</b> --><style>a > b {}</style><br/>7 <b x='y'>8"
    assert extract_html_text(page) == "5 < 6\n7 8"


def test_a_mail_without_an_id_is_known_whatever_its_headers_hold() -> None:
    raw = b'From: a@far.example\nContent-Type: multipart/mixed; boundary="y\xe9"\n\n--y\xe9\n\nhi\n--y\xe9--\n'
    assert get_message_id(parse_mail(raw), raw).startswith("<sha256-")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\n" * 5000, "100 parts"),
        (b"From: a@far.example\n\n" + b"\n" * 900_000, "400,000 lines"),
    ],
    ids=["parts", "lines"],
)
def test_a_mail_that_takes_long_to_read_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(RequestRejected, match=why):
        parse_mail(raw)


def test_a_mail_that_cannot_be_read_is_kept_aside_and_the_next_one_is_taken(base: Path, post: Imap) -> None:
    with_mail(base, post)
    post.put(UNREADABLE, mail())
    look_at(base)
    assert [entry.payload["text"] for entry in arrived(base)] == ["Hello?"]
    refused = next(line for line in noted(base) if line["did"] == "refused")
    assert "it cannot be read" in refused["why"]
    assert (base / refused["file"]).read_bytes().startswith(b"From: ")
    assert post.unseen() == 0


@pytest.mark.long
def test_who_writes_too_much_keeps_nobody_else_from_being_read(base: Path, post: Imap) -> None:
    with_mail(base, post, per_sender_an_hour=1)
    many = [mail(Message_ID=f"<m-{number}@far.example>") for number in range(52)]
    post.put(*many, mail(Message_ID="<other@near.example>", From="bob@near.example"))
    org = Organisation(base)
    for _ in range(2):
        poll_once(org, SystemClock().now, lambda _: None)
    assert {entry.payload["from"] for entry in arrived(base)} == {"ada@far.example", "bob@near.example"}
    assert post.unseen() == 51
