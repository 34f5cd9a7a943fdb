"""Parsing of mails: id, sender, text without markup, attachments, and rejection rules. Pure."""

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
_HIDDEN_TAGS = {"script", "style", "head", "title", "template", "noscript"}
_BLOCK_TAGS = {"p", "div", "br", "tr", "li", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "table", "hr"}
_NAME_CHARS = re.compile(r"[^\w.+=@ -]")
_MAX_NAME_BYTES = 200  # a file system takes 255, and a number may stand before it
_BULK = {"bulk", "junk", "list"}
MAX_PARTS, MAX_LINES, MAX_HEADER_CHARS = 100, 400_000, 2048
"""Limits of a mail: the time of Python's parser grows with parts times lines, and with the square of a
header's length."""
_COMMENT_OR_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?=[a-zA-Z/!?])([^<>]*)>", re.DOTALL)
_TAG_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]{0,20}")


class MailAttachment(NamedTuple):
    """File in a mail. `folder`: a unique name per mail."""

    folder: str
    name: str
    content: bytes


class _BoundedHeaderPolicy(EmailPolicy):
    """Mail policy that truncates oversized headers before parsing."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:MAX_HEADER_CHARS])


def parse_mail(raw: bytes) -> EmailMessage:
    """Return a parsed mail. Raises: RequestRejected for a mail with too many parts or lines."""
    part_count = 0

    def make_part(policy: Policy) -> EmailMessage:
        nonlocal part_count
        part_count += 1
        if part_count > MAX_PARTS:
            raise RequestRejected(f"a mail must have at most {MAX_PARTS} parts, got more")
        return EmailMessage(policy)

    if raw.count(b"\n") + raw.count(b"\r") > 2 * MAX_LINES:
        raise RequestRejected(f"a mail must have at most {MAX_LINES:,} lines, got more")
    mail = message_from_bytes(raw, policy=_BoundedHeaderPolicy(message_factory=make_part, refold_source="none"))
    assert isinstance(mail, EmailMessage)
    return mail


def get_message_id(mail: EmailMessage, raw: bytes) -> str:
    """Return a mail's Message-ID, or a digest of its bytes if missing."""
    match = _ID.search(_header_text(mail, "Message-ID"))
    return match[0] if match else f"<sha256-{sha256(raw).hexdigest()[:32]}@no-id>"


def get_references(mail: EmailMessage) -> list[str]:
    """Return the ids of earlier mails in the conversation, oldest first."""
    ids = _ID.findall(_header_text(mail, "References")) or _ID.findall(_header_text(mail, "In-Reply-To"))
    return list(dict.fromkeys(ids))


def get_sender(mail: EmailMessage) -> str:
    """Return the sender address of a mail in lower case, or the empty string.

    The same address is checked against rules, counted and answered. A Reply-To is ignored: an allowed sender
    could redirect answers to others, and appear as another sender each time.
    """
    address = parseaddr(_header_text(mail, "From"))[1].strip().lower()
    return address if re.fullmatch(r"[^@\s,<>]+@[^@\s,<>]+", address) else ""


def refusal_reason(mail: EmailMessage, sender: str, own_address: str, allowed: Sequence[str]) -> str:
    """Return the reason for rejecting a mail, or "": a program's, the channel's own or an unlisted sender's."""
    if not sender:
        return "the mail has no sender"
    if own_address.lower() == sender:
        return "the mail comes from the channel's own address"
    if _header_text(mail, "Auto-Submitted").partition(";")[0].strip().lower() not in ("", "no"):
        return "the mail was sent by a program (Auto-Submitted)"
    if _header_text(mail, "Precedence").strip().lower() in _BULK or mail.get("List-Id") is not None:
        return "the mail comes from a mailing list"
    if _header_text(mail, "Return-Path").strip() == "<>" or mail.get_content_type() == "multipart/report":
        return "the mail is a delivery report"
    if allowed and not any(matches_address(sender, pattern) for pattern in allowed):
        return 'the sender is not in "allow_from"'
    return ""


def extract_mail_text(mail: EmailMessage) -> str:
    """Return the text of a mail: its plain part, else its HTML without markup, else its subject."""
    part = mail.get_body(("plain", "html"))
    text = _part_text(part) if part is not None else ""
    if part is not None and part.get_content_type() == "text/html":
        text = extract_html_text(text)
    return text.strip() or _header_text(mail, "Subject").strip() or "(an empty mail)"


def iter_attachments(mail: EmailMessage, ident: str) -> Iterator[MailAttachment]:
    """Yield the files in a mail, with safe names."""
    folder, used_names = blake2b(ident.encode("utf-8", "replace"), digest_size=6).hexdigest(), set[str]()
    for number, part in enumerate(mail.iter_attachments(), 1):
        name = safe_name(part.get_filename() or f"part-{number}")
        if name in used_names:
            name = f"{number}-{name}"
        used_names.add(name)
        if part.get_content_type() == "message/rfc822":
            content: bytes | object = b"".join(subpart.as_bytes() for subpart in part.iter_parts())
        else:
            content = part.get_payload(decode=True)
        yield MailAttachment(folder, name, content if isinstance(content, bytes) else b"")


def safe_name(name: str) -> str:
    """Return a file name without path separators, hiding prefixes and shell characters.

    >>> safe_name("../../etc/passwd"), safe_name(".bashrc"), safe_name("Q3 report.pdf")
    ('passwd', '_bashrc', 'Q3 report.pdf')
    """
    base_name = name.replace("\\", "/").rpartition("/")[2]
    safe = _NAME_CHARS.sub("_", base_name).strip()[-100:]  # the suffix gives the type
    while len(safe.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        safe = safe[1:]
    return f"_{safe.lstrip('.-')}" if safe[:1] in (".", "-", "") else safe


def extract_html_text(page: str) -> str:
    """Return the text of an HTML page, without markup, scripts and styles.

    >>> extract_html_text("<style>p {}</style><p>Hello &amp; <b>welcome</b></p><p>Bye</p>").splitlines()
    ['Hello & welcome', '', 'Bye']
    """
    texts, hidden_depth, end = [], 0, 0
    for match in _COMMENT_OR_TAG.finditer(page):
        if not hidden_depth:
            texts.append(html.unescape(page[end : match.start()]))
        end = match.end()
        name = _TAG_NAME.match(match[1] or "")
        tag = name[0].lower() if name else ""
        if tag.lstrip("/") in _HIDDEN_TAGS:
            hidden_depth = max(0, hidden_depth - 1) if tag.startswith("/") else hidden_depth + 1
        elif tag.lstrip("/") in _BLOCK_TAGS:
            texts.append("\n")
    if not hidden_depth:
        texts.append(html.unescape(page[end:]))
    lines = [" ".join(line.split()) for line in "".join(texts).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _part_text(part: MIMEPart) -> str:
    """Return a part as text. An unknown or wrong charset loses some characters."""
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    try:
        return raw.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown codec, or one that cannot decode, such as "idna"
        return raw.decode("utf-8", "replace")


def _header_text(mail: EmailMessage, name: str) -> str:
    """Return a header as text, or the empty string for a malformed header."""
    try:
        return str(mail.get(name, ""))
    except (ValueError, IndexError, TypeError, AttributeError):  # errors that hostile headers raise in the parser
        return ""


def matches_address(address: str, allowed: str) -> bool:
    """Return True if an address equals the allowed address, or belongs to the domain `@example.org`.

    >>> matches_address("Ada@Example.org", "@example.org"), matches_address("ada@far.example", "ada@example.org")
    (True, False)
    """
    address, allowed = address.strip().lower(), allowed.strip().lower()
    return address == allowed or (allowed.startswith("@") and address.endswith(allowed))
