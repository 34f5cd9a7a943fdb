"""The files of a run that screens read, `progress.jsonl` and `session.json`. Texts in them have no secrets."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from lemming.capabilities.workers.attempts import Attempt
from lemming.capabilities.workers.harnesses.harness_types import Progress, RunTokens
from lemming.capabilities.workers.harnesses.json_fields import JsonFields
from lemming.capabilities.workers.running.run_types import HarnessRun
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.files import fs
from lemming.kernel.files.fs import AppendFile

PROGRESS_FILE, SESSION_FILE = "progress.jsonl", "session.json"
_MAX_TEXT_CHARS, _MAX_SCANNED_CHARS = 500, 4000
_MAX_PROGRESS_BYTES = 4 << 20
_END_OF_LOG = {"kind": "text", "text": "more progress is not written: the file is full", "path": ""}


class RunLog:
    """The log of one run. `file`: `progress.jsonl`. `earlier_tokens`: those of the session's earlier runs."""

    def __init__(self, run: HarnessRun, file: AppendFile) -> None:
        self._run, self._file, self._clock, self._session = run, file, SystemClock(), ""
        saved = Attempt("", run.folder).read_json(SESSION_FILE)
        tokens = JsonFields(saved.get("tokens") if saved.get("session") == run.session else None)
        self.earlier_tokens = RunTokens(*map(tokens.get_count, asdict(RunTokens())))
        self.save_session(run.session)

    def add(self, progress: Progress) -> None:
        """Append a step of the worker, unless the file is full, and pass it on. Paths are relative to the clone."""
        if progress.kind == "session":
            self.save_session(progress.text)
        text, path = (
            self.redact(value[:_MAX_SCANNED_CHARS].replace(f"{self._run.clone}/", ""))[:_MAX_TEXT_CHARS]
            for value in (progress.text, progress.path)
        )
        progress = replace(progress, text=text, path=path)
        if self._run.on_progress is not None:
            self._run.on_progress(progress)
        if self._file.size > _MAX_PROGRESS_BYTES:
            return
        entry = {"at": self._clock.now().isoformat(), **asdict(progress)}
        self._file.append(json.dumps(entry).encode() + b"\n")
        if self._file.size > _MAX_PROGRESS_BYTES:
            self._file.append(json.dumps(entry | _END_OF_LOG).encode() + b"\n")

    def save_session(self, session: str, tokens: RunTokens | None = None) -> None:
        """Write the session's id durably as soon as it is known, and its tokens at the end. Repeatable."""
        if session and (session != self._session or tokens):
            self._session = session
            total = asdict(self.earlier_tokens + (tokens or RunTokens()))
            content = json.dumps({"session": session, "harness": self._run.harness.name, "tokens": total})
            fs.write_atomic(self._run.folder, SESSION_FILE, content.encode(), sync=True)

    def redact(self, text: str) -> str:
        """Return a text of the harness without secrets."""
        key = self._run.secret_key
        return redact_untrusted(text.replace(key, "[redacted key]") if key else text)
