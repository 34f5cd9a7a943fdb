"""The mail channel: IMAP in, SMTP out. What a mail says is read in `channels.email_text`.

A mail is marked as seen once its entry is on the disk, and so is one that can be no entry, once the log of
the channel says why.
"""

from __future__ import annotations

import contextlib
import imaplib
import re
import smtplib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    Message,
    Outgoing,
    Soon,
    edge,
    require_kind,
    require_name,
)
from lemming.capabilities.channels.email_text import (
    attachments_of,
    mail_in,
    message_id_of,
    references_of,
    sender_of,
    text_of_mail,
    why_refused,
)
from lemming.capabilities.channels.exchange import Exchange, open_exchange
from lemming.capabilities.channels.http import value_of
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import ConfigError, RateLimited, RequestRejected, Unavailable
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.files import fs
from lemming.kernel.files.quota import FolderSize, measure
from lemming.kernel.org.config import load_config

Encryption = Literal["ssl", "starttls", "none"]
MOST_AT_ONCE = 50
SLOWEST_BYTES_PER_S = 1 << 16
"""A large mail has a second more for so many bytes."""
_SIZE = re.compile(rb"RFC822\.SIZE (\d{1,18})")


@dataclass(frozen=True)
class MailServer:
    """Where a server is, and how it is spoken to."""

    host: str
    port: int
    encryption: Encryption


class MailChannel(Channel):
    """Reads the unseen mail of a mailbox, and sends mail as `address`; its password is in a variable."""

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "serve"

    def __init__(
        self,
        *,
        address: str,
        to: str = "",
        kind: MessageKind = "request",
        imap_host: str = "",
        imap_port: int = 993,
        imap_encryption: Encryption = "ssl",
        smtp_host: str = "",
        smtp_port: int = 587,
        smtp_encryption: Encryption = "starttls",
        user: str = "",
        password_env: str = "",
        mailbox: str = "INBOX",
        allow_from: list[str] | None = None,
        allow_to: list[str] | None = None,
        poll_s: float = 30.0,
        timeout_s: float = 30.0,
        max_bytes: int = 20 << 20,
        max_text_chars: int = 32_000,
        max_attachment_bytes: int = 10 << 20,
        per_sender_an_hour: int | None = 60,
    ) -> None:
        require_kind(kind)
        require_name(to)
        if "@" not in address:
            raise ConfigError('option "address": it is no mail address', hint='"address": "desk@example.org"')
        if not (imap_host or smtp_host):
            raise ConfigError("nothing can come in or go out", hint='set "imap_host", "smtp_host", or both')
        if poll_s <= 0 or timeout_s <= 0:
            raise ConfigError('options "poll_s" and "timeout_s" must be more than 0')
        self.to, self.kind, self.address = to, kind, address
        self._imap = MailServer(imap_host, imap_port, imap_encryption)
        self._smtp = MailServer(smtp_host, smtp_port, smtp_encryption)
        self._user, self._password_env = user or address, password_env
        self._mailbox, self._allow_from, self._allow_to = mailbox, allow_from or [], allow_to or []
        self._poll_s, self._timeout_s, self._max_bytes = poll_s, timeout_s, max_bytes
        self._max_text_chars, self._max_attachment_bytes = max_text_chars, max_attachment_bytes
        self._most_an_hour = per_sender_an_hour
        self._next_look: dict[str, Deadline] = {}
        self._put_off: dict[str, dict[str, Deadline]] = {}
        self.sends = bool(smtp_host)
        self.variables = [password_env] if password_env else []

    def place(self, host: str, port: int, agent: str) -> str:
        """Return in words what it reads and what it sends as."""
        reads = [f"reads {self._mailbox} of {self._user} at {self._imap.host}"] if self._imap.host else []
        return ", ".join([*reads, *([f"sends as {self.address}"] if self.sends else [])])

    def collect(self, context: ChannelContext) -> Soon:
        """Take in unseen mail, the oldest first, some at a time."""
        next_look = self._next_look.get(context.agent.name)
        if not self._imap.host or (next_look and not next_look.has_passed):
            return Soon()
        self._next_look[context.agent.name] = Deadline(self._poll_s)
        deadline = Deadline(self._timeout_s)
        with (
            open_exchange(self._imap.host, deadline, context.stop) as exchange,
            self._mailbox_open(exchange) as imap,
        ):
            unseen = self._due(context, self._search(imap))
            for number in unseen[:MOST_AT_ONCE]:
                deadline.restart()  # so much for each mail
                self._take(context, imap, number, deadline)
        if len(unseen) > MOST_AT_ONCE:
            del self._next_look[context.agent.name]
        return Soon(max(0, len(unseen) - MOST_AT_ONCE))

    def _due(self, context: ChannelContext, unseen: list[str]) -> list[str]:
        """Return the mails that are to be looked at, without those of senders who have to wait."""
        put_off = self._put_off.get(context.agent.name, {})
        left = {it: put_off[it] for it in unseen if it in put_off and not put_off[it].has_passed}
        self._put_off[context.agent.name] = left
        return [number for number in unseen if number not in left]

    def _search(self, imap: imaplib.IMAP4) -> list[str]:
        _, found = imap.uid("SEARCH", "UNSEEN")
        return (found[0] or b"").decode().split() if found else []

    def _take(self, context: ChannelContext, imap: imaplib.IMAP4, number: str, deadline: Deadline) -> None:
        """Make an entry of one mail and mark it as seen; one of a sender who writes too much is left.

        One that cannot be read is kept as a file beside the attachments, and the log says why.
        """
        raw = b""
        try:
            raw = self._fetch(imap, number, deadline)
            with edge():
                mail = mail_in(raw)
                ident = message_id_of(mail, raw)
                if ident not in context.log.traffic.messages:
                    self._receive(context, mail, ident)
        except RateLimited as error:
            again = Deadline(error.retry_after_s or self._poll_s)
            self._put_off.setdefault(context.agent.name, {})[number] = again
            return
        except RequestRejected as error:
            context.refuse(f"mail {number}", error.message)
        except Unavailable as error:
            if not raw:  # it is the server that is out of reach
                raise
            file = self._kept_copy(context, raw)
            context.refuse(f"mail {number}", f"it cannot be read: {error.message}", file=file)
        # Last, with its entry on the disk or its reason in the log: what is cut short comes again.
        imap.uid("STORE", number, "+FLAGS", "(\\Seen)")

    def _kept_copy(self, context: ChannelContext, raw: bytes) -> str:
        """Keep a mail as it came, for a person to look at; return its path, empty where there is no room."""
        path, content = f"mail/refused/{sha256(raw).hexdigest()[:32]}.eml", redact_content(raw)
        return "" if _beyond_quota(context, path, len(content)) else self._saved(context, path, content)

    def _fetch(self, imap: imaplib.IMAP4, number: str, deadline: Deadline) -> bytes:
        # Asked first, so that a mail that is too large is never fetched.
        _, sizes = imap.uid("FETCH", number, "(RFC822.SIZE)")
        size = _size_in(sizes)
        if size > self._max_bytes:
            raise RequestRejected(f"{size:,} bytes are more than {self._max_bytes:,} (max_bytes)")
        deadline.extend(size / SLOWEST_BYTES_PER_S)
        # PEEK, as a mail that is only read must stay unseen.
        _, parts = imap.uid("FETCH", number, "(BODY.PEEK[])")
        raw = next((part[1] for part in parts if isinstance(part, tuple)), None)
        if not raw:
            raise Unavailable("the server does not give the mail")
        return bytes(raw)

    def _receive(self, context: ChannelContext, mail: EmailMessage, ident: str) -> None:
        sender = sender_of(mail)
        if why := why_refused(mail, sender, self.address, self._allow_from):
            raise RequestRejected(f"{why} (from {sender or 'nobody'})")
        text = text_of_mail(mail)
        if len(text) > self._max_text_chars:
            text = f"{text[: self._max_text_chars]}\n[cut: {len(text):,} characters in all]"
        if self._most_an_hour is not None:  # before anything is written
            context.require_few(context.log.traffic, sender, self._most_an_hour)
        kept, left_out = self._save(context, mail, ident)
        more: dict[str, object] = {"subject": str(mail.get("Subject", ""))[:500]}
        if references := references_of(mail):
            more["conversation"] = references[0][:200]
        else:
            more["conversation"] = ident[:200]
        more |= {key: value for key, value in (("files", kept), ("left_out", left_out)) if value}
        context.receive(
            Message(id=ident, text=text, sender=sender, kind=self.kind, target=self.to, more=more),
            most_an_hour=self._most_an_hour,
        )

    def _save(self, context: ChannelContext, mail: EmailMessage, ident: str) -> tuple[list[str], list[str]]:
        """Save attachments into the agent's workspace; return their paths, and what was too large."""
        kept, left_out, room = [], [], self._max_attachment_bytes
        for attachment in attachments_of(mail, ident):
            name, content = attachment.name, redact_content(attachment.content)
            path = f"mail/{attachment.folder}/{name}"
            if len(content) > room:
                left_out.append(f"{name} ({len(content):,} bytes)")
            elif why := _beyond_quota(context, path, len(content)):
                left_out.append(f"{name} ({len(content):,} bytes: {why})")
            else:
                room -= len(content)
                kept.append(self._saved(context, path, content))
        return kept, left_out

    def _saved(self, context: ChannelContext, path: str, content: bytes) -> str:
        """Write a file into the agent's workspace; return its path in the organisation."""
        whole = f"{paths.workspace_folder(context.agent.name)}/{path}"
        fs.publish(context.org.base, whole, content, sync=context.syncs)
        return whole

    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        """Send an entry as a mail: an answer to who wrote, anything else to `payload.to` if it is allowed."""
        mail, deadline = self._mail_of(outgoing), Deadline(self._timeout_s)
        try:
            with (
                open_exchange(self._smtp.host, deadline, context.stop) as exchange,
                self._smtp_open(exchange) as smtp,
            ):
                smtp.send_message(mail)
                with contextlib.suppress(OSError, smtplib.SMTPException):
                    smtp.quit()  # the mail was taken, whatever becomes of the goodbye
        except smtplib.SMTPRecipientsRefused as error:
            code, why = next(iter(error.recipients.values()))
            raise _refusal(code, why) from error
        except smtplib.SMTPResponseException as error:
            raise _refusal(error.smtp_code, error.smtp_error) from error
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"{self._smtp.host}: {error}") from error

    def _mail_of(self, outgoing: Outgoing) -> EmailMessage:
        entry, asked = outgoing.entry, outgoing.answers
        mail = EmailMessage(policy=SMTP)
        mail["From"] = self.address
        domain = self.address.rpartition("@")[2]
        mail["Message-ID"] = f"<{entry.tick:08}.{entry.id}.{entry.agent}@{domain}>"
        # So that no other program answers it, and the two go on for ever.
        mail["Auto-Submitted"] = "auto-replied" if asked else "auto-generated"
        with contextlib.suppress(ValueError):
            mail["Date"] = format_datetime(parse_timestamp(entry.created_at))
        try:
            mail["To"] = Address(addr_spec=self._recipient(outgoing))
            subject = asked.payload.get("subject") if asked else entry.payload.get("subject")
            plain = " ".join(str(subject or outgoing.text.strip()[:70] or "A message").split())
            mail["Subject"] = f"Re: {plain.removeprefix('Re: ')}" if asked else plain
            if asked and (ident := str(asked.payload.get("message_id", ""))).startswith("<"):
                mail["In-Reply-To"] = ident
                first = str(asked.payload.get("conversation", ident))
                mail["References"] = ident if first == ident else f"{first} {ident}"
        except (ValueError, IndexError) as error:
            raise RequestRejected(f"a mail cannot be made of it: {error}") from error
        mail.set_content(outgoing.text)
        return mail

    def _recipient(self, outgoing: Outgoing) -> str:
        """Return whom an entry is for. What an agent writes chooses only among those who are allowed."""
        if outgoing.answers and (sender := outgoing.answers.payload.get("from")):
            return str(sender)
        wanted = str(outgoing.entry.payload.get("to") or "")
        if not wanted:
            raise RequestRejected('it answers no mail, and has no "to" in its payload')
        if not any(matches(wanted, allowed) for allowed in self._allow_to):
            raise RequestRejected(f'{wanted} is not in "allow_to" of the channel')
        return wanted

    @contextlib.contextmanager
    def _mailbox_open(self, exchange: Exchange) -> Iterator[imaplib.IMAP4]:
        """Give the mailbox; whatever goes wrong with the server is `Unavailable`."""
        try:
            with self._imap_connected(exchange) as imap:
                imap.login(self._user, value_of(self._password_env))
                status, said = imap.select(self._mailbox)
                if status != "OK":
                    raise Unavailable(f"no mailbox {self._mailbox}: {said!r}")
                yield imap
        except (OSError, imaplib.IMAP4.error) as error:
            raise Unavailable(f"{self._imap.host}: {error}") from error

    def _imap_connected(self, exchange: Exchange) -> imaplib.IMAP4:
        class Watched(imaplib.IMAP4):
            def open(self, *args: Any, **more: Any) -> None:
                exchange.watch(lambda: getattr(self, "sock", None))  # the greeting may drip as well
                super().open(*args, **more)

        class WatchedSsl(Watched, imaplib.IMAP4_SSL):
            pass

        at, context = self._imap, ssl.create_default_context()
        if at.encryption == "ssl":
            return WatchedSsl(at.host, at.port, ssl_context=context, timeout=self._timeout_s)
        imap = Watched(at.host, at.port, timeout=self._timeout_s)
        if at.encryption == "starttls":
            imap.starttls(context)
        return imap

    @contextlib.contextmanager
    def _smtp_open(self, exchange: Exchange) -> Iterator[smtplib.SMTP]:
        class Watched(smtplib.SMTP):
            def connect(self, *args: Any, **more: Any) -> tuple[int, bytes]:
                exchange.watch(lambda: self.sock)
                return super().connect(*args, **more)

        class WatchedSsl(Watched, smtplib.SMTP_SSL):
            pass

        at, context = self._smtp, ssl.create_default_context()
        if at.encryption == "ssl":
            smtp: smtplib.SMTP = WatchedSsl(at.host, at.port, timeout=self._timeout_s, context=context)
        else:
            smtp = Watched(at.host, at.port, timeout=self._timeout_s)
        with smtp:
            if at.encryption == "starttls":
                smtp.starttls(context=context)
            if password := value_of(self._password_env):
                smtp.login(self._user, password)
            yield smtp


def _beyond_quota(context: ChannelContext, path: str, size_bytes: int) -> str:
    """Return the limit of `quota` that a file more in the agent's workspace exceeds; empty when none is."""
    allowed = load_config(context.org).org.quota
    folder = context.org.base / paths.workspace_folder(context.agent.name)
    if (folder / path).exists():  # written before a kill, and held already
        return ""
    new_folders = sum(not (folder / parent).exists() for parent in Path(path).parents)
    held = measure(str(folder))
    after = FolderSize(held.size_bytes + size_bytes, held.files + new_folders + 1)
    return after.beyond(FolderSize(allowed.max_bytes, allowed.max_files))


def matches(address: str, allowed: str) -> bool:
    """Return whether an address is the one allowed, or of the domain `@example.org`.

    >>> matches("Ada@Example.org", "@example.org"), matches("ada@far.example", "ada@example.org")
    (True, False)
    """
    address, allowed = address.strip().lower(), allowed.strip().lower()
    return address == allowed or (allowed.startswith("@") and address.endswith(allowed))


def _refusal(code: int, why: bytes | str) -> Unavailable | RequestRejected:
    """Return the error for an answer of an SMTP server: 4xx may pass, 5xx does not."""
    said = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
    kind = Unavailable if 400 <= code < 500 else RequestRejected
    return kind(f"the mail server says {code} {said}")


def _size_in(parts: list[object]) -> int:
    """Return the size that a server tells of a mail; 0 when it tells none."""
    found = _SIZE.search(b" ".join(part for part in parts if isinstance(part, bytes)))
    return to_int(found[1]) if found else 0
