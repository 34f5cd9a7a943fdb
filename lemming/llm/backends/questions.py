"""What names a question in a recording, so that it answers this one and no other. Pure.

That is what the agent is told to be and all that it is shown: instructions, memory, files, entries, results.
Left out is what differs though the same is asked: the tick, ids, the account that a file came from, and how
a reply is to be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from lemming.base.jsontext import JsonProblem, compact, parse
from lemming.providers import Message

_INSTRUCTIONS = re.compile(r"^# Instructions\n(.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
_SAYS_NOTHING = frozenset({"# Now", "# Your reply"})
_OPENS = re.compile(r"<<<DATA [0-9a-f]+\Z")
_MARK = re.compile(r"\b[0-9a-f]{32}\b")  # of data: another one in each tick
_TICK = re.compile(r"^It is tick \d+\.")
_DIGITS = 16


def question_in(messages: list[Message]) -> str:
    """Return what names the question that these messages ask: 16 hexadecimal digits.

    >>> first = [{"role": "user", "content": "# Now\\nIt is tick 1.\\n# Memory\\n(empty)"}]
    >>> later = [{"role": "user", "content": "# Now\\nIt is tick 7.\\n# Memory\\n(empty)"}]
    >>> question_in(first) == question_in(later)
    True
    """
    asked = [{**message, "content": _instructions_or_all(message)} for message in messages]
    return sha256(compact(asked)).hexdigest()[:_DIGITS]


def _instructions_or_all(message: Message) -> str:
    content = message["content"]
    if message["role"] != "system":
        return "\n".join(_telling(content))
    found = _INSTRUCTIONS.search(content)
    return found[1] if found else _MARK.sub("", content)


def _telling(content: str) -> Iterator[str]:
    """Yield the lines that tell what is asked; those of others' text are data, whatever they look like."""
    end, is_left_out = "", False
    for line in content.split("\n"):
        if end:  # a judge is shown the prompt of whom it judges
            yield _TICK.sub("", _MARK.sub("", _without_ids(line))) if line != end else "DATA>>>"
            end = "" if line == end else end
        elif _OPENS.match(line):
            end = f"{line.removeprefix('<<<DATA ')} DATA>>>"
            yield "<<<DATA"
        else:
            is_left_out = line in _SAYS_NOTHING if line.startswith("# ") else is_left_out
            if not is_left_out:
                yield line


def _without_ids(line: str) -> str:
    if not line.startswith('{"id": '):
        return line
    try:
        entry = parse(line)
    except JsonProblem:  # a long one is cut
        return line
    if not isinstance(entry.get("payload"), dict):
        return line
    payload = {key: value for key, value in entry["payload"].items() if key not in ("from", "message_id")}
    kept = {key: value for key, value in entry.items() if key not in ("id", "tick")}
    return compact({**kept, "payload": payload}).decode()
