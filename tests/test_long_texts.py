"""What strangers and models write is searched in a time in proportion to its length.

A search of Python's `re` holds the interpreter: no other agent goes on, no limit of time holds, no signal is
heard.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemming.capabilities.channels.email_parser import extract_mail_text, get_message_id, get_sender, parse_mail
from lemming.capabilities.judges.judge_verdicts import parse_verdict
from lemming.capabilities.plans.value_paths import fill_arguments, find_references
from lemming.import_export.claude_importer import split_words
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.base.reply_json import extract_object
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.turn.replies import to_reply_text
from lemming.libraries.front_matter import InvalidFrontMatter
from lemming.queries.findings.false_claims import _CALL_CLAIM, _FILE_CLAIM, _SENTENCE

REFUSED = (LemmingError, InvalidFrontMatter, ValueError, RecursionError, IndexError)
CHARS = 60_000
AT_MOST_S = 120


def in_mail(head: str) -> Callable[[str], object]:
    return lambda text: _read_mail(f"From: a@far.example\n{head.format(text)}".encode())


def _read_mail(raw: bytes) -> object:
    mail = parse_mail(raw)
    return get_message_id(mail, raw), get_sender(mail), extract_mail_text(mail), str(mail.get("Subject", ""))


SEARCHES: dict[str, Callable[[str], Any]] = {
    "a template": lambda text: (list(find_references(text)), fill_arguments(text, {})),
    "a verdict": parse_verdict,
    "a reply": lambda text: extract_object(text, []),
    "an action": lambda text: to_reply_text(text, ["message"]),
    "a redaction": lambda text: redact_content(text.encode()),
    "a quotation": escape_markers,
    "claims": lambda text: [(_FILE_CLAIM.match(it), _CALL_CLAIM.match(it)) for it in _SENTENCE.split(text)],
    "a list of words": split_words,
    "a page in a mail": in_mail("Content-Type: text/html\n\n{}"),
    "a type in a mail": in_mail("Content-Type: {}\n\nhi"),
    "a sender of a mail": in_mail("Reply-To: {}\n\nhi"),
    "a subject of a mail": in_mail("Subject: {}\n\nhi"),
}
BEGINNINGS = ("", "{{", "```", "```x")
PIECES = (
    " ", "\n", "{{", "{{ ", "}}", "{", '{"a":', "[", "```", "```\n", "```json ", "<tool_call>", "<!--", "<a ",
    "<a b='", '<a href="', "<![CDATA[", "</a", "<", "a;", "a@b,", "(", "=?utf-8?q?a?= ", '"\\', "'\\", "/* ",
    ",", "a :", "wrote ", "wrote a/", "eyJ-", "://a:", "&#x41;", "=4", "\\u0041", "AAAA\n",
)  # fmt: skip


def test_no_text_holds_the_interpreter() -> None:
    """In a process of its own, which can be ended while `re` searches."""
    command = [sys.executable, "-u", __file__]
    said = subprocess.run(command, capture_output=True, text=True, timeout=AT_MOST_S, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    assert said.stdout.splitlines() == [*SEARCHES]


def search(what: str) -> None:
    for begins in BEGINNINGS if what in ("a template", "a verdict", "an action") else ("",):
        for piece in PIECES:
            text = begins + (piece * CHARS)[:CHARS]
            with contextlib.suppress(*REFUSED):
                SEARCHES[what](text)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    for name in SEARCHES:
        print(name)  # the last one is shown when its time is over
        search(name)
