"""What models and tools have answered in a case, by question: `evals/<name>/recorded.jsonl`, a line each."""

from __future__ import annotations

import contextlib
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from lemming.base.jsontext import JsonProblem, compact, parse
from lemming.files import fs
from lemming.files.documents import unreadable
from lemming.org.cases import RECORD_FILE, case_file
from lemming.org.organisation import OrgPath
from lemming.redaction import redact_json

LIMIT_BYTES = 256 << 20
Json = dict[str, Any]


class Kept:
    """The answers of one case; safe to use from many threads. A line is there before its answer is used.

    The last of several lines of one question counts. A line that is none, such as a crash leaves, is nothing.
    """

    def __init__(self, base: OrgPath, name: str) -> None:
        self._folder = Path(base) / Path(case_file(name)).parent
        self._where = f"{Path(case_file(name)).parent}/{RECORD_FILE}"
        self._lock = threading.Lock()
        self._is_torn = False

    def __getitem__(self, question: str) -> Json | None:
        """Return the answer to a question; None where there is none."""
        with self._lock:
            return self._answers.get(question)

    def keep(self, question: str, answer: Json, **about: Any) -> None:
        """Keep an answer; `about` says for people what the question was. Raises `DiskError`."""
        line = {"question": question, **about, "answer": redact_json(answer)}
        with self._lock:
            self._answers[question] = line["answer"]
            end = b"\n" if self._is_torn else b""
            fs.append(self._folder, RECORD_FILE, end + compact(line) + b"\n")
            self._is_torn = False

    @cached_property
    def _answers(self) -> dict[str, Json]:
        try:
            raw = fs.read_bytes(self._folder / RECORD_FILE, LIMIT_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unreadable(self._where, error) from error
        self._is_torn = not raw.endswith(b"\n")
        found: dict[str, Json] = {}
        for line in raw.splitlines():
            with contextlib.suppress(
                JsonProblem, LookupError, TypeError, ValueError
            ):  # then it is asked again
                plain = parse(line, limit_bytes=LIMIT_BYTES)
                found[plain["question"]] = dict(plain["answer"])
        return found
