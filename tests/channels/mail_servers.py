"""Real mail servers on this machine: pymap for IMAP, aiosmtpd for SMTP; without them tests are skipped."""

from __future__ import annotations

import contextlib
import gc
import imaplib
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from email.message import EmailMessage, Message
from typing import Any, NamedTuple

import pytest
from patience import PATIENCE_S, until

USER, PASSWORD, BOX = "desk@example.org", "a-password-of-mail", "Post"
SERVER = """
from pymap.main import main
from pysasl.hashing import BuiltinHash
BuiltinHash.__init__.__kwdefaults__["rounds"] = 1  # each login is a tenth of a second otherwise
main()
"""
UNREADABLE = (
    b"From: eve@far.example\r\nMessage-ID: <e-1@far.example>\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n"
    b"Content-Disposition: attachmentttachment; filename*\r\n\r\nfile\r\n--x--\r\n"
)
"""A mail that Python's parser breaks over."""


class Imap(NamedTuple):
    """An IMAP server with one empty mailbox, `Post`."""

    port: int

    @contextlib.contextmanager
    def opened(self) -> Iterator[imaplib.IMAP4]:
        with imaplib.IMAP4("127.0.0.1", self.port, timeout=PATIENCE_S) as imap:
            imap.login(USER, PASSWORD)
            imap.select(BOX)
            yield imap

    def put(self, *mails: Message | bytes) -> None:
        """Deliver mails into the mailbox."""
        with self.opened() as imap:
            for mail in mails:
                imap.append(BOX, "", "", mail if isinstance(mail, bytes) else mail.as_bytes())  # type: ignore[arg-type]

    def unseen(self) -> int:
        """Return how many mails are not marked as seen."""
        with self.opened() as imap:
            return len(imap.uid("SEARCH", "UNSEEN")[1][0].split())

    def empty(self) -> None:
        """Take all mails away."""
        with self.opened() as imap:
            for number in imap.uid("SEARCH", "ALL")[1][0].decode().split():
                imap.uid("STORE", number, "+FLAGS", "(\\Deleted)")
            imap.expunge()

    def unmark(self) -> None:
        """Take the marks off all mails, as if nothing had been read."""
        with self.opened() as imap:
            for number in imap.uid("SEARCH", "ALL")[1][0].decode().split():
                imap.uid("STORE", number, "-FLAGS", "(\\Seen)")


@contextlib.contextmanager
def imap_server() -> Iterator[Imap]:
    """Run an IMAP server for the length of the block."""
    pytest.importorskip("pymap", reason="there is no IMAP server to test with: pip install pymap")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--no-service", "admin", "--no-service", "managesieve", "--host", "127.0.0.1", "--port", str(port)]
    user = ["dict", "--demo-data", "--demo-user", USER, "--demo-password", PASSWORD]
    command = [sys.executable, "-c", SERVER, *words, "--no-tls", *user]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(port)
        with imaplib.IMAP4("127.0.0.1", port, timeout=PATIENCE_S) as imap:
            imap.login(USER, PASSWORD)
            imap.create(BOX)
        yield Imap(port)
    finally:
        process.kill()
        process.wait()


def _await(port: int) -> None:
    """Wait until somebody listens."""

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            return True
        return False

    until(listens)


class Outbox:
    """What an SMTP server was given, and what it answers first."""

    def __init__(self, *answers: str) -> None:
        self.mails: list[EmailMessage] = []
        self.answers = list(answers)
        self.port = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name
        from email import message_from_bytes
        from email.policy import default

        if self.answers:
            return self.answers.pop(0)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        return "250 taken"


@contextlib.contextmanager
def smtp_server(*answers: str) -> Iterator[Outbox]:
    """Run an SMTP server for the length of the block; `answers` are what it says to the first mails."""
    pytest.importorskip("aiosmtpd", reason="there is no SMTP server to test with: pip install aiosmtpd")
    from aiosmtpd.controller import Controller

    outbox = Outbox(*answers)
    with socket.create_server(("127.0.0.1", 0)) as free:
        outbox.port = free.getsockname()[1]
    controller = Controller(outbox, hostname="127.0.0.1", port=outbox.port)
    controller.start()
    try:
        yield outbox
    finally:
        controller.stop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()  # its loop may end before it has closed every connection


def mail(text: str = "Hello?", **headers: str) -> EmailMessage:
    """Return a mail of ada to the desk; `headers` replace or add to what it says of itself."""
    found = EmailMessage()
    plain = {"From": "Ada <ada@far.example>", "To": USER, "Subject": "A question", "Message-ID": "<m-1@far.example>"}
    for name, value in {**plain, **{key.replace("_", "-"): it for key, it in headers.items()}}.items():
        if value:
            found[name] = value
    found.set_content(text)
    return found
