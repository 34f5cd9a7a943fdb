"""What a stranger may have written by mail: within the hourly limit and the quota, and for one address."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from channel_polls import poll_once
from doorway import answer_to, arrived, noted, with_channel
from mail_servers import BOX, PASSWORD, UNREADABLE, USER, Imap, imap_server, mail, smtp_server

from lemming.capabilities.channels.email_parser import get_sender
from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock


@pytest.fixture(scope="module")
def server() -> Iterator[Imap]:
    """One IMAP server for all."""
    with imap_server() as server:
        yield server


@pytest.fixture
def post(server: Imap, monkeypatch: pytest.MonkeyPatch) -> Imap:
    """The mailbox, empty."""
    monkeypatch.setenv("POST_PASSWORD", PASSWORD)
    server.empty()
    return server


def with_mail(base: Path, post: Imap, *, quota: dict[str, int] | None = None, **options: Any) -> Path:
    at = {"imap_host": "127.0.0.1", "imap_port": post.port, "imap_encryption": "none"}
    plain = {"address": USER, "to": "desk", "password_env": "POST_PASSWORD", "mailbox": BOX, "poll_s": 1e-9}
    org = {"quota": quota} if quota else {}
    return with_channel(base, {**plain, **at, **options}, provider="mail", org=org)


def look_at(base: Path) -> None:
    poll_once(Organisation(base), SystemClock().now, lambda _: None)


def files_of(base: Path) -> list[str]:
    folder = base / "agents/door/workspace"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def fill(base: Path, *names: str, content: bytes = b"x") -> None:
    """Put files into the workspace of the channel's agent."""
    folder = base / "agents/door/workspace"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content)


def with_file(number: int, *, size: int = 10, **headers: str) -> EmailMessage:
    found = mail(Message_ID=f"<m-{number}@far.example>", **headers)
    found.add_attachment(b"x" * size, maintype="application", subtype="pdf", filename=f"{number}.pdf")
    return found


def test_of_mails_beyond_the_hourly_limit_nothing_is_written(base: Path, post: Imap) -> None:
    with_mail(base, post, per_sender_an_hour=2)
    post.put(*(with_file(number) for number in range(5)))
    look_at(base)
    assert len(arrived(base)) == 2
    assert files_of(base) == ["0.pdf", "1.pdf"]


def test_a_sender_counts_as_one_whatever_reply_to_it_names(base: Path, post: Imap) -> None:
    with_mail(base, post, per_sender_an_hour=2)
    post.put(*(with_file(number, Reply_To=f"{number}@near.example") for number in range(5)))
    look_at(base)
    assert len(arrived(base)) == 2


def test_an_attachment_beyond_the_quota_is_left_out_and_named(base: Path, post: Imap) -> None:
    with_mail(base, post, quota={"max_bytes": 1 << 20, "max_files": 100})
    post.put(with_file(0, size=500_000), with_file(1, size=800_000))
    look_at(base)
    assert len(arrived(base)) == 2
    ((left_out,),) = [it.payload["left_out"] for it in arrived(base) if "left_out" in it.payload]
    assert left_out.startswith("1.pdf (800,000 bytes: ")
    assert left_out.endswith("bytes, at most 1048576 are allowed)")
    assert files_of(base) == ["0.pdf"]


def test_a_quota_of_files_holds_for_attachments_too(base: Path, post: Imap) -> None:
    with_mail(base, post, quota={"max_bytes": 1 << 30, "max_files": 100})
    fill(base, *(f"{number}.txt" for number in range(95)))
    post.put(*(with_file(number) for number in range(3)))
    look_at(base)
    assert len(arrived(base)) == 3
    assert [name for name in files_of(base) if name.endswith(".pdf")] == ["0.pdf", "1.pdf"]


def test_an_unreadable_mail_is_not_kept_beyond_the_quota(base: Path, post: Imap) -> None:
    with_mail(base, post, quota={"max_bytes": 1 << 20, "max_files": 100})
    fill(base, "full.txt", content=b"x" * (1 << 20))
    post.put(UNREADABLE)
    look_at(base)
    assert files_of(base) == ["full.txt"]
    assert post.unseen() == 0


def test_the_answer_goes_to_the_address_that_was_allowed(base: Path, post: Imap) -> None:
    with smtp_server() as out:
        sends = {"smtp_host": "127.0.0.1", "smtp_port": out.port, "smtp_encryption": "none"}
        with_mail(base, post, allow_from=["ada@far.example"])
        post.put(mail(Reply_To="eve@elsewhere.example"))
        look_at(base)
        run_once(base, clock=FrozenClock())
        answer_to(base, arrived(base)[0], "the secret plan")
        run_once(base, clock=FrozenClock())
        with_channel(base, {"address": USER, "to": "desk", **sends}, provider="mail")
        look_at(base)
    assert [sent["To"] for sent in out.mails] == ["ada@far.example"]


def test_a_mail_without_from_has_no_sender() -> None:
    assert get_sender(mail(From="", Reply_To="ada@far.example")) == ""


def test_what_is_refused_is_noted(base: Path, post: Imap) -> None:
    with_mail(base, post, allow_from=["@near.example"])
    post.put(with_file(0, Reply_To="ada@near.example"))
    look_at(base)
    assert [line["did"] for line in noted(base)] == ["refused"]
    assert files_of(base) == []
