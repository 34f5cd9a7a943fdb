"""Mail channel: IMAP for receiving, SMTP for sending. `channels.email_parser` parses mails.

A mail is marked as seen after its entry is on disk. A rejected mail is marked as seen after the reason is in
the channel's log.
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
    InboundMessage,
    OutgoingEntry,
    PollResult,
    require_kind,
    require_name,
    wrap_provider_errors,
)
from lemming.capabilities.channels.email_parser import (
    extract_mail_text,
    get_message_id,
    get_references,
    get_sender,
    iter_attachments,
    matches_address,
    parse_mail,
    refusal_reason,
)
from lemming.capabilities.channels.http_channel import get_variable
from lemming.capabilities.channels.watched_connections import WatchedConnections, watch_connections
from lemming.ext import ConfigError
from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import RateLimited, RequestRejected, Unavailable
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.files import fs
from lemming.kernel.files.quota import FolderSize, measure
from lemming.kernel.org.config import load_config

Encryption = Literal["ssl", "starttls", "none"]
MAX_BATCH = 50
MIN_BYTES_PER_S = 1 << 16
"""A large mail has a second more for so many bytes."""
_SIZE = re.compile(rb"RFC822\.SIZE (\d{1,18})")


@dataclass(frozen=True)
class MailServer:
    """Address and encryption of a mail server."""

    host: str
    port: int
    encryption: Encryption


class MailChannel(Channel):
    """Channel for the unseen mails of a mailbox, sending as `address`. The password is in an environment variable."""

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
            raise ConfigError('option "address" must be a mail address', hint="write desk@example.org")
        if not (imap_host or smtp_host):
            raise ConfigError('"imap_host" or "smtp_host" is required', hint="set one of them, or both")
        if poll_s <= 0 or timeout_s <= 0:
            raise ConfigError('options "poll_s" and "timeout_s" must be more than 0')
        self.to, self.kind, self.address = to, kind, address
        self._imap = MailServer(imap_host, imap_port, imap_encryption)
        self._smtp = MailServer(smtp_host, smtp_port, smtp_encryption)
        self._user, self._password_env = user or address, password_env
        self._mailbox, self._allow_from, self._allow_to = mailbox, allow_from or [], allow_to or []
        self._poll_s, self._timeout_s, self._max_bytes = poll_s, timeout_s, max_bytes
        self._max_text_chars, self._max_attachment_bytes = max_text_chars, max_attachment_bytes
        self._max_per_hour = per_sender_an_hour
        self._next_poll: dict[str, Deadline] = {}
        self._postponed: dict[str, dict[str, Deadline]] = {}
        self.sends = bool(smtp_host)
        self.variables = [password_env] if password_env else []

    def endpoint(self, host: str, port: int, agent: str) -> str:
        """Return a description of the mailbox and the sender address."""
        reads = [f"reads {self._mailbox} of {self._user} at {self._imap.host}"] if self._imap.host else []
        return ", ".join([*reads, *([f"sends as {self.address}"] if self.sends else [])])

    def collect(self, context: ChannelContext) -> PollResult:
        """Receive unseen mails in batches, oldest first."""
        next_poll = self._next_poll.get(context.agent.name)
        if not self._imap.host or (next_poll and not next_poll.has_passed):
            return PollResult()
        self._next_poll[context.agent.name] = Deadline(self._poll_s)
        watch = watch_connections(self._imap.host, deadline := Deadline(self._timeout_s), context.stop)
        with watch as connections, self._open_mailbox(connections) as imap:
            _, response = imap.uid("SEARCH", "UNSEEN")
            unseen = self._due_mail(context, (response[0] or b"").decode().split() if response else [])
            for number in unseen[:MAX_BATCH]:
                deadline.restart()  # a time limit for each mail
                self._receive_mail(context, imap, number, deadline)
        if len(unseen) > MAX_BATCH:
            del self._next_poll[context.agent.name]
        return PollResult(max(0, len(unseen) - MAX_BATCH))

    def _due_mail(self, context: ChannelContext, unseen: list[str]) -> list[str]:
        """Return the mails to process, without mails of senders over their limit."""
        postponed = self._postponed.get(context.agent.name, {})
        still_postponed = {uid: postponed[uid] for uid in unseen if uid in postponed and not postponed[uid].has_passed}
        self._postponed[context.agent.name] = still_postponed
        return [number for number in unseen if number not in still_postponed]

    def _receive_mail(self, context: ChannelContext, imap: imaplib.IMAP4, number: str, deadline: Deadline) -> None:
        """Create the entry of a mail and mark the mail as seen.

        A mail of a sender over the limit stays unseen. An unreadable mail is saved as a file beside the attachments,
        and the log has the reason.
        """
        raw = b""
        try:
            raw = self._fetch_mail(imap, number, deadline)
            with wrap_provider_errors():
                mail = parse_mail(raw)
                ident = get_message_id(mail, raw)
                if ident not in context.log.history.messages:
                    self._receive_message(context, mail, ident)
        except RateLimited as error:
            retry_deadline = Deadline(error.retry_after_s or self._poll_s)
            self._postponed.setdefault(context.agent.name, {})[number] = retry_deadline
            return
        except RequestRejected as error:
            context.record_refusal(f"mail {number}", error.message)
        except Unavailable as error:
            if not raw:  # it is the server that is out of reach
                raise
            # The original for a person, unless it is over the quota.
            path, content = f"mail/refused/{sha256(raw).hexdigest()[:32]}.eml", redact_content(raw)
            has_room = not _find_exceeded_quota(context, path, len(content))
            file = self._save_attachment(context, path, content) if has_room else ""
            context.record_refusal(f"mail {number}", f"it cannot be read: {error.message}", file=file)
        # Last, with the entry on disk or the reason in the log: an interrupted mail is received again.
        imap.uid("STORE", number, "+FLAGS", "(\\Seen)")

    def _fetch_mail(self, imap: imaplib.IMAP4, number: str, deadline: Deadline) -> bytes:
        # Asked first, so that a mail that is too large is never fetched.
        _, sizes = imap.uid("FETCH", number, "(RFC822.SIZE)")
        match = _SIZE.search(b" ".join(part for part in sizes if isinstance(part, bytes)))
        size = to_int(match[1]) if match else 0
        if size > self._max_bytes:
            raise RequestRejected(f"max_bytes allows {self._max_bytes:,} bytes, got {size:,}")
        deadline.extend(size / MIN_BYTES_PER_S)
        # PEEK, as a mail that is only read must stay unseen.
        _, parts = imap.uid("FETCH", number, "(BODY.PEEK[])")
        raw = next((part[1] for part in parts if isinstance(part, tuple)), None)
        if not raw:
            raise Unavailable("the server did not return the mail")
        return bytes(raw)

    def _receive_message(self, context: ChannelContext, mail: EmailMessage, ident: str) -> None:
        sender = get_sender(mail)
        if reason := refusal_reason(mail, sender, self.address, self._allow_from):
            raise RequestRejected(f"{reason} (from {sender or 'nobody'})")
        text = extract_mail_text(mail)
        if len(text) > self._max_text_chars:
            text = f"{text[: self._max_text_chars]}\n[cut: {len(text):,} characters in all]"
        if self._max_per_hour is not None:  # before anything is written
            context.require_below_limit(context.log.history, sender, self._max_per_hour)
        saved_paths, omitted = self._save_attachments(context, mail, ident)
        conversation = [*get_references(mail), ident][0][:200]
        extra_fields: dict[str, object] = {"subject": str(mail.get("Subject", ""))[:500], "conversation": conversation}
        extra_fields |= {key: value for key, value in (("files", saved_paths), ("left_out", omitted)) if value}
        context.receive(
            InboundMessage(id=ident, text=text, sender=sender, kind=self.kind, target=self.to, more=extra_fields),
            most_an_hour=self._max_per_hour,
        )

    def _save_attachments(self, context: ChannelContext, mail: EmailMessage, ident: str) -> tuple[list[str], list[str]]:
        """Save attachments to the agent's workspace. Return their paths, and descriptions of omitted attachments."""
        saved_paths, omitted, room = [], [], self._max_attachment_bytes
        for attachment in iter_attachments(mail, ident):
            name, content = attachment.name, redact_content(attachment.content)
            path = f"mail/{attachment.folder}/{name}"
            if len(content) > room:
                omitted.append(f"{name} ({len(content):,} bytes)")
            elif quota_error := _find_exceeded_quota(context, path, len(content)):
                omitted.append(f"{name} ({len(content):,} bytes: {quota_error})")
            else:
                room -= len(content)
                saved_paths.append(self._save_attachment(context, path, content))
        return saved_paths, omitted

    def _save_attachment(self, context: ChannelContext, path: str, content: bytes) -> str:
        org_path = f"{paths.workspace_folder(context.agent.name)}/{path}"
        fs.write_atomic(context.org.base, org_path, content, sync=context.syncs)
        return org_path

    def deliver(self, context: ChannelContext, outgoing: OutgoingEntry) -> None:
        """Send an entry as a mail: an answer to its sender, any other entry to an allowed `payload.to`."""
        mail, deadline = self._build_mail(outgoing), Deadline(self._timeout_s)
        try:
            watch = watch_connections(self._smtp.host, deadline, context.stop)
            with watch as connections, self._connect_smtp(connections) as smtp:
                smtp.send_message(mail)
                with contextlib.suppress(OSError, smtplib.SMTPException):
                    smtp.quit()  # the mail was taken, whatever becomes of the goodbye
        except smtplib.SMTPRecipientsRefused as error:
            code, message = next(iter(error.recipients.values()))
            raise _smtp_error(code, message) from error
        except smtplib.SMTPResponseException as error:
            raise _smtp_error(error.smtp_code, error.smtp_error) from error
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"{self._smtp.host}: {error}") from error

    def _build_mail(self, outgoing: OutgoingEntry) -> EmailMessage:
        entry, request_entry = outgoing.entry, outgoing.answers
        mail = EmailMessage(policy=SMTP)
        mail["From"] = self.address
        domain = self.address.rpartition("@")[2]
        mail["Message-ID"] = f"<{entry.tick:08}.{entry.id}.{entry.agent}@{domain}>"
        # So that no other program answers it, and the two go on for ever.
        mail["Auto-Submitted"] = "auto-replied" if request_entry else "auto-generated"
        with contextlib.suppress(ValueError):
            mail["Date"] = format_datetime(parse_timestamp(entry.created_at))
        try:
            mail["To"] = Address(addr_spec=self._choose_recipient(outgoing))
            subject = request_entry.payload.get("subject") if request_entry else entry.payload.get("subject")
            plain = " ".join(str(subject or outgoing.text.strip()[:70] or "A message").split())
            mail["Subject"] = f"Re: {plain.removeprefix('Re: ')}" if request_entry else plain
            if request_entry and (ident := str(request_entry.payload.get("message_id", ""))).startswith("<"):
                mail["In-Reply-To"] = ident
                first = str(request_entry.payload.get("conversation", ident))
                mail["References"] = ident if first == ident else f"{first} {ident}"
        except (ValueError, IndexError) as error:
            raise RequestRejected(f"the entry cannot be turned into a mail: {error}") from error
        mail.set_content(outgoing.text)
        return mail

    def _choose_recipient(self, outgoing: OutgoingEntry) -> str:
        """Return the recipient of an entry. An agent can choose only among allowed recipients."""
        if outgoing.answers and (sender := outgoing.answers.payload.get("from")):
            return str(sender)
        recipient = str(outgoing.entry.payload.get("to") or "")
        if not recipient:
            raise RequestRejected('the entry must answer a mail, or have "to" in its payload')
        if not any(matches_address(recipient, allowed) for allowed in self._allow_to):
            raise RequestRejected(f'recipient {recipient} is not in "allow_to" of the channel')
        return recipient

    @contextlib.contextmanager
    def _open_mailbox(self, connections: WatchedConnections) -> Iterator[imaplib.IMAP4]:
        """Provide the open mailbox. Server errors become `Unavailable`."""
        try:
            with self._connect_imap(connections) as imap:
                imap.login(self._user, get_variable(self._password_env))
                status, response = imap.select(self._mailbox)
                if status != "OK":
                    raise Unavailable(f"mailbox {self._mailbox} cannot be opened: {response!r}")
                yield imap
        except (OSError, imaplib.IMAP4.error) as error:
            raise Unavailable(f"{self._imap.host}: {error}") from error

    def _connect_imap(self, connections: WatchedConnections) -> imaplib.IMAP4:
        class Watched(imaplib.IMAP4):
            def open(self, *args: Any, **more: Any) -> None:
                connections.add(lambda: getattr(self, "sock", None))  # the greeting may drip as well
                super().open(*args, **more)

        class WatchedSsl(Watched, imaplib.IMAP4_SSL):
            pass

        server, tls_context = self._imap, ssl.create_default_context()
        if server.encryption == "ssl":
            return WatchedSsl(server.host, server.port, ssl_context=tls_context, timeout=self._timeout_s)
        imap = Watched(server.host, server.port, timeout=self._timeout_s)
        if server.encryption == "starttls":
            imap.starttls(tls_context)
        return imap

    @contextlib.contextmanager
    def _connect_smtp(self, connections: WatchedConnections) -> Iterator[smtplib.SMTP]:
        class Watched(smtplib.SMTP):
            def connect(self, *args: Any, **more: Any) -> tuple[int, bytes]:
                connections.add(lambda: self.sock)
                return super().connect(*args, **more)

        class WatchedSsl(Watched, smtplib.SMTP_SSL):
            pass

        server, tls_context = self._smtp, ssl.create_default_context()
        if server.encryption == "ssl":
            smtp: smtplib.SMTP = WatchedSsl(server.host, server.port, timeout=self._timeout_s, context=tls_context)
        else:
            smtp = Watched(server.host, server.port, timeout=self._timeout_s)
        with smtp:
            if server.encryption == "starttls":
                smtp.starttls(context=tls_context)
            if password := get_variable(self._password_env):
                smtp.login(self._user, password)
            yield smtp


def _find_exceeded_quota(context: ChannelContext, path: str, size_bytes: int) -> str:
    """Return the `quota` limit exceeded by another file in the agent's workspace, or the empty string."""
    allowed = load_config(context.org).org.quota
    folder = context.org.base / paths.workspace_folder(context.agent.name)
    if (folder / path).exists():  # written before a kill, and held already
        return ""
    new_folders = sum(not (folder / parent).exists() for parent in Path(path).parents)
    current_size = measure(str(folder))
    new_size = FolderSize(current_size.size_bytes + size_bytes, current_size.files + new_folders + 1)
    return new_size.exceeded_limit(FolderSize(allowed.max_bytes, allowed.max_files))


def _smtp_error(code: int, message: bytes | str) -> Unavailable | RequestRejected:
    """Return the error for an SMTP status: 4xx is temporary, 5xx is permanent."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    error_type = Unavailable if 400 <= code < 500 else RequestRejected
    return error_type(f"the mail server says {code} {text}")
