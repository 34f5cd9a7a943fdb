"""What a mail says: its id, sender, text without markup and attachments, and whether it is taken. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy, Policy
from email.utils import parseaddr
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from lemming.kernel.base.errors import RequestRejected

_ID = re.compile(r"<[^<>\s]{1,300}>")
_SILENT = {"script", "style", "head", "title", "template", "noscript"}
_BREAKS = {
    "p",
    "div",
    "br",
    "tr",
    "li",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "pre",
    "table",
    "hr",
}
_NAME_CHARS = re.compile(r"[^\w.+=@ -]")
_LONGEST_NAME_BYTES = 200  # a file system takes 255, and a number may stand before it
_BULK = {"bulk", "junk", "list"}
MOST_PARTS, MOST_LINES, MOST_HEADER_CHARS = 100, 400_000, 2048
"""What Python's parser takes grows with parts times lines, and with the square of a header's length."""
_COMMENT_OR_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?=[a-zA-Z/!?])([^<>]*)>", re.DOTALL)
_TAG_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]{0,20}")


class Attachment(NamedTuple):
    """A file in a mail. `folder`: a word of its own for each mail."""

    folder: str
    name: str
    content: bytes


class _Bounded(EmailPolicy):
    """Reads of a header what is not longer than headers are."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:MOST_HEADER_CHARS])


def mail_in(raw: bytes) -> EmailMessage:
    """Return the mail that bytes are; raise `RequestRejected` for one that would take too long to read."""
    made = 0

    def part(policy: Policy) -> EmailMessage:
        nonlocal made
        made += 1
        if made > MOST_PARTS:
            raise RequestRejected(f"it has more than {MOST_PARTS} parts")
        return EmailMessage(policy)

    if raw.count(b"\n") + raw.count(b"\r") > 2 * MOST_LINES:
        raise RequestRejected(f"it has more than {MOST_LINES:,} lines")
    mail = message_from_bytes(raw, policy=_Bounded(message_factory=part, refold_source="none"))
    assert isinstance(mail, EmailMessage)
    return mail


def message_id_of(mail: EmailMessage, raw: bytes) -> str:
    """Return a mail's Message-ID; one that has none is known by the digest of its bytes."""
    found = _ID.search(_header(mail, "Message-ID"))
    return found[0] if found else f"<sha256-{sha256(raw).hexdigest()[:32]}@no-id>"


def references_of(mail: EmailMessage) -> list[str]:
    """Return the ids of the mails that a mail follows, the first of the conversation first."""
    found = _ID.findall(_header(mail, "References")) or _ID.findall(_header(mail, "In-Reply-To"))
    return list(dict.fromkeys(found))


def sender_of(mail: EmailMessage) -> str:
    """Return the address that a mail is from, in lower case; empty when there is none.

    One address is allowed, counted and answered. A Reply-To is not: whoever may write could have answers
    sent to others, and count as another each time.
    """
    address = parseaddr(_header(mail, "From"))[1].strip().lower()
    return address if re.fullmatch(r"[^@\s,<>]+@[^@\s,<>]+", address) else ""


def why_refused(mail: EmailMessage, sender: str, own: str, allowed: Sequence[str]) -> str:
    """Return why a mail is not taken: a machine sent it, we did, or a stranger; empty when it is."""
    if not sender:
        return "it has no sender"
    if own.lower() == sender:
        return "it comes from the channel's own address"
    if _header(mail, "Auto-Submitted").partition(";")[0].strip().lower() not in ("", "no"):
        return "a program has sent it (Auto-Submitted)"
    if _header(mail, "Precedence").strip().lower() in _BULK or mail.get("List-Id") is not None:
        return "it comes from a list"
    if _header(mail, "Return-Path").strip() == "<>" or mail.get_content_type() == "multipart/report":
        return "it is a report of a mail server"
    if allowed and not any(_is_allowed(sender, one) for one in allowed):
        return 'its sender is not in "allow_from"'
    return ""


def text_of_mail(mail: EmailMessage) -> str:
    """Return the text of a mail: its plain part, else its HTML without markup, else its subject."""
    part = mail.get_body(("plain", "html"))
    text = _content(part) if part is not None else ""
    if part is not None and part.get_content_type() == "text/html":
        text = text_of_html(text)
    return text.strip() or _header(mail, "Subject").strip() or "(an empty mail)"


def attachments_of(mail: EmailMessage, ident: str) -> Iterator[Attachment]:
    """Yield the files in a mail, with names that lead nowhere else."""
    folder, taken = blake2b(ident.encode("utf-8", "replace"), digest_size=6).hexdigest(), set[str]()
    for number, part in enumerate(mail.iter_attachments(), 1):
        name = safe_name(part.get_filename() or f"part-{number}")
        if name in taken:
            name = f"{number}-{name}"
        taken.add(name)
        if part.get_content_type() == "message/rfc822":
            content: bytes | object = b"".join(each.as_bytes() for each in part.iter_parts())
        else:
            content = part.get_payload(decode=True)
        yield Attachment(folder, name, content if isinstance(content, bytes) else b"")


def safe_name(name: str) -> str:
    """Return a file's name without what could lead elsewhere, hide it, or trouble a shell.

    >>> safe_name("../../etc/passwd"), safe_name(".bashrc"), safe_name("Q3 report.pdf")
    ('passwd', '_bashrc', 'Q3 report.pdf')
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = _NAME_CHARS.sub("_", last).strip()[-100:]  # its end tells what it is
    while len(plain.encode("utf-8", "replace")) > _LONGEST_NAME_BYTES:
        plain = plain[1:]
    return f"_{plain.lstrip('.-')}" if plain[:1] in (".", "-", "") else plain


def text_of_html(page: str) -> str:
    """Return what a page says, without markup, scripts and styles.

    >>> text_of_html("<style>p {}</style><p>Hello &amp; <b>welcome</b></p><p>Bye</p>")
    'Hello & welcome\\n\\nBye'
    """
    said, silent, end = [], 0, 0
    for found in _COMMENT_OR_TAG.finditer(page):
        if not silent:
            said.append(html.unescape(page[end : found.start()]))
        end = found.end()
        name = _TAG_NAME.match(found[1] or "")
        tag = name[0].lower() if name else ""
        if tag.lstrip("/") in _SILENT:
            silent = max(0, silent - 1) if tag.startswith("/") else silent + 1
        elif tag.lstrip("/") in _BREAKS:
            said.append("\n")
    if not silent:
        said.append(html.unescape(page[end:]))
    lines = [" ".join(line.split()) for line in "".join(said).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _is_allowed(address: str, allowed: str) -> bool:
    allowed = allowed.strip().lower()
    return address == allowed or (allowed.startswith("@") and address.endswith(allowed))


def _content(part: MIMEPart) -> str:
    """Return a part as text; a charset that is unknown or wrong costs some letters."""
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    try:
        return raw.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):  # none we know, or one that cannot read it, such as "idna"
        return raw.decode("utf-8", "replace")


def _header(mail: EmailMessage, name: str) -> str:
    """Return a header as text; one that cannot be parsed is empty."""
    try:
        return str(mail.get(name, ""))
    except (
        ValueError,
        IndexError,
        TypeError,
        AttributeError,
    ):  # what headers of strangers make of the parser
        return ""
