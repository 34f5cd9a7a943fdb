"""Harnesses as model providers: a question is a run in a private clone, the answer a text and a patch.

The provider changes nothing outside the attempt's folder. It runs where the engine's executor makes model calls, on this
machine or on one of a cluster.
"""

from __future__ import annotations

import os
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from lemming.capabilities.workers.attempts import (
    JOB,
    STOP_FILE,
    Attempt,
    WorkerJob,
    engine_repository_folder,
    get_attempt,
)
from lemming.capabilities.workers.harnesses.harness_table import load_harness, with_command
from lemming.capabilities.workers.harnesses.harness_types import HarnessEnd, HarnessRun, PermissionQuestion
from lemming.capabilities.workers.harnesses.json_fields import OWN_TOKENS, JsonFields, RunTokens
from lemming.capabilities.workers.repositories.engine_repository import (
    load_bundle,
    make_clone,
    open_engine_repository,
    patch_clone,
)
from lemming.capabilities.workers.repositories.user_repository import UserRepository, open_repository
from lemming.capabilities.workers.repositories.work_tree import TakenTree, take_tree
from lemming.capabilities.workers.running.vendor_apis import load_api
from lemming.capabilities.workers.running.worker_run import run_harness
from lemming.ext import ConfigError, describe_field, make_field
from lemming.kernel.base import paths
from lemming.kernel.base.errors import RequestRejected, Unavailable, Unusable
from lemming.kernel.base.jsontext import dump_compact, is_equal_json, parse
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import parse_document
from lemming.kernel.providers import Backend, Message, Reply, Request

_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run of a recording: its task, text and patch."""

    contains: str = field(metadata=describe_field("Text of the task that this run answers.", min_length=1))
    text: str = field(metadata=describe_field("Text that the worker answers."))
    patch: str = make_field("", "File with the patch; empty: nothing was changed.")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Recorded runs, of which the first that fits a task is replayed."""

    runs: list[RecordedRun] = field(metadata=describe_field("Runs, of which the first that fits is replayed."))


def _read_file(base: Path, file: str) -> bytes:
    try:
        return fs.read_bytes(base / file, _LIMIT_BYTES)
    except OSError as error:
        message = f"recording must be a readable file, got {error.strerror or error}"
        raise ConfigError(message, where=file, hint="check options.file in config/models.json") from error


MAX_FILES = 20_000
CONTINUE = "You were interrupted. Your changes so far are in this folder. Go on with the task."
"""Prompt for a session that is resumed after the engine was killed."""
Permissions = Literal["bypass", "ask"]


class WorkerProvider(Backend):
    """A harness as a model: a plain command, or the harness that a subclass names.

    `command`: the program, in place of the harness's own. `api_key_env`: variable with the key of the model's server, which
    the sandbox never sees; empty: the vendor's usual one, or none for another server. `base_url`: another server.
    `max_cost_usd`, `max_turns`: limits of a run. `deadline_s`, `silence_s`: seconds for a run, and without any output.
    `permissions`: "ask" lets gates decide what the harness asks while it runs, instead of permitting everything inside the
    clone. `env`: further variables that the harness gets.
    """

    harness_name = "command"
    takes_extra = True
    keeps_deadline = True
    makes_many_calls = True
    max_concurrent = 4
    has_program = True

    def __init__(
        self,
        *,
        command: list[str] | None = None,
        api_key_env: str = "",
        base_url: str = "",
        max_cost_usd: Annotated[float | None, Ge(0)] = None,
        max_turns: Annotated[int | None, Ge(0)] = None,
        deadline_s: Annotated[float, Gt(0)] = 1800.0,
        silence_s: Annotated[float, Gt(0)] = 600.0,
        permissions: Permissions = "bypass",
        env: list[str] | None = None,
        base: Path | None = None,
    ) -> None:
        harness = load_harness(self.harness_name)
        if self.has_program and not (command or harness.program):
            hint = f'set options.command in {paths.MODELS_FILE}, as in ["gemini", "--experimental-acp"]'
            raise Unusable("options.command must name a program, got nothing", where=self.harness_name, hint=hint)
        self.harness = with_command(harness, command) if command else harness
        if max_cost_usd is not None and self.harness.api == "none" and self.has_program:
            hint = (
                "remove it, and limit deadline_s: the model requests of this harness do not pass the engine; "
                "a limit in dollars lets it run where both prices of its line are 0"
            )
            raise Unusable("options.max_cost_usd cannot be kept", where=self.harness_name, hint=hint)
        vendor = load_api(self.harness.api) if self.harness.api != "none" else None
        self.key_variable = api_key_env or (vendor.key_variable if vendor and not base_url else "")
        self._base_url, self._env = base_url or (vendor.find_address() if vendor else ""), env or []
        self._max_turns, self.deadline_s, self._silence_s = max_turns, deadline_s, silence_s
        self.max_cost_usd, self._permissions, self._base = max_cost_usd, permissions, base or Path()

    def complete(self, request: Request) -> Reply:
        """Run the harness in a private clone, and return its text with the patch in `kept`.

        A run that fails is a charged failure and is not repeated. Raises `Unavailable` if the engine is to end: nothing is
        recorded, and the next run goes on. Raises `Unusable` without a workspace.
        """
        if JOB not in (request.extra or {}):
            hint = 'give the agent a "workspace" in its resume.json: docs/workers.md'
            raise Unusable("the agent must have a workspace, got none", where=self.harness_name, hint=hint)
        job = WorkerJob(**(request.extra or {})[JOB])
        attempt = get_attempt(self._base, job.key)
        noted = attempt.read_json("attempt.json")
        if noted.get("run") == job.run and noted.get("at") != job.at:
            attempt.remove()  # of an organisation that was in this folder before, with ticks of the same numbers
        fs.make_root(attempt.folder)
        attempt.write_json("owner.json", {"pid": os.getpid(), "host": socket.gethostname()})
        repository = open_repository(Path(job.repository)) if job.repository else None
        object_format = "sha256" if len(job.base) == 64 else "sha1"
        folder = engine_repository_folder(self._base, job.repository or object_format)
        engine_repo = open_engine_repository(folder, repository, object_format=object_format)
        if job.bundle:  # on another machine there is no repository to borrow from
            load_bundle(engine_repo, b64decode(job.bundle), job.base)
        while True:
            prompt, session = self._enter_clone(job, attempt, repository, request.messages)
            run = HarnessRun(
                harness=self.harness, job=job, attempt=attempt, prompt=prompt, session=session,
                readable=list_readable(job, repository),
                environment={name: os.environ[name] for name in self._env if name in os.environ},
                base_url=self._base_url, key=os.environ.get(self.key_variable, "") if self.key_variable else "",
                max_turns=self._max_turns,
                spent_usd=sum(float(item.get("cost_usd") or 0) for item in attempt.iter_lines("usage.jsonl")),
                deadline_s=request.deadline_s, silence_s=self._silence_s,
                permit=_make_permit(job.grants) if self._permissions == "ask" else None,
                stop=self.stopping or threading.Event(),
            )  # fmt: skip
            end = self.run_worker(run)
            asked_nothing = self.harness.api != "none" and not end.requests
            if not (session and end.error and not end.ended_by and asked_nothing):
                break
            attempt.discard_work()  # its session is gone or damaged: once more, without one
        if self.stopping and self.stopping.is_set():
            raise Unavailable("the engine ended during the run", where=self.harness_name)
        fs.remove(attempt.folder, STOP_FILE)
        tree = take_tree(engine_repo, attempt.clone, job.base, max_file_bytes=job.max_file_bytes, max_files=MAX_FILES)
        return self._make_reply(job, attempt, end, tree)

    def run_worker(self, run: HarnessRun) -> HarnessEnd:
        """Run the harness to its end."""
        return run_harness(run)

    def _enter_clone(
        self,
        job: WorkerJob,
        attempt: Attempt,
        repository: UserRepository | None,
        messages: Sequence[Message],
    ) -> tuple[str, str]:
        """Make the clone, or use that of an interrupted or earlier run. Return the prompt and the session to resume."""
        noted, session = attempt.read_json("attempt.json"), attempt.read_json("session.json").get("session", "")
        facts = {"base": job.base, "harness": self.harness.name, "run": job.run, "at": job.at}
        is_same_clone = noted.get("base") == job.base and noted.get("harness") == self.harness.name
        if session and self.harness.resume and is_same_clone and attempt.clone.is_dir() and attempt.home.is_dir():
            if noted.get("run") == job.run:
                return CONTINUE, str(session)
            if noted.get("run") == job.run - 1:
                attempt.write_json("attempt.json", facts)
                # Its session has the messages up to its last answer.
                last = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
                return _to_text(messages[last + 1 :]), str(session)
        attempt.discard_work()
        fill_clone(job, attempt, repository)
        attempt.write_json("attempt.json", facts)
        return _to_text([*messages, *_describe_folder(job, messages)]), ""

    def _make_reply(self, job: WorkerJob, attempt: Attempt, end: HarnessEnd, tree: TakenTree) -> Reply:
        # Of all runs of the attempt, also of interrupted ones, unless nothing passed the gateway.
        counts = [JsonFields(line).sum_tokens(OWN_TOKENS) for line in attempt.iter_lines("usage.jsonl")]
        tokens = sum(counts, RunTokens()) if counts else end.tokens
        outcome: dict[str, Any] = {
            "harness": self.harness.name,
            "session": end.session or attempt.read_json("session.json").get("session", ""), "exit": end.exit_status,
            "cost_usd": end.cost_usd, "gateway_usd": end.gateway_usd, "base": job.base, "tree": tree.tree,
            "content": b64encode(tree.patch).decode("ascii"), "files": [asdict(file) for file in tree.files],
            "left_out": dict(tree.left_out), "flags": dict(tree.flags), "error": end.error,
            "message": redact_values(end.message)[:2000],
            "questions": [{"tool": item.tool, "input": dict(item.input)} for item in end.questions], "run": job.run,
            "key": job.key,
        }  # fmt: skip
        return Reply(
            text=end.text or end.message, input_tokens=tokens.input if tokens else None,
            output_tokens=tokens.output if tokens else None, cached_tokens=tokens.cached if tokens else None,
            written_tokens=tokens.written if tokens else None, finish="failed" if end.error else "stop",
            model=job.model or self.harness.name, kept={JOB: outcome},
        )  # fmt: skip


def fill_clone(job: WorkerJob, attempt: Attempt, repository: UserRepository | None) -> None:
    """Make the clone and HOME of an attempt, with the job's patch applied."""
    fs.make_folder(attempt.folder, "home")
    make_clone(
        attempt.clone,
        job.base,
        agent=job.agent,
        repository=repository,
        bundle=b64decode(job.bundle),
        is_full_copy=job.is_full_copy,
    )
    if job.patch:
        patch_clone(attempt.clone, b64decode(job.patch))


def list_readable(job: WorkerJob, repository: UserRepository | None) -> list[Path]:
    """Return the folders that a run of a job may read besides its clone."""
    borrowed = repository.list_object_folders() if repository and not job.is_full_copy else []
    return [*borrowed, *map(Path, job.readable)]


def _describe_folder(job: WorkerJob, messages: Sequence[Message]) -> Sequence[Message]:
    """Return a message about a new clone for a harness that has answered before, and believes in its changes."""
    if all(message["role"] != "assistant" for message in messages):
        return ()
    has = "with your changes" if job.patch else "as it is now, without the changes of your earlier answers"
    return [{"role": "user", "content": f"This folder holds the branch {has}."}]


def _to_text(messages: Sequence[Message]) -> str:
    """Return messages as one text for standard input; earlier answers of the harness are marked."""
    headings = {"assistant": "Your answer was:\n"}
    texts = (headings.get(message["role"], "") + message["content"] for message in messages)
    return "\n\n".join(filter(None, texts)) + "\n"


def _make_permit(grants: Sequence[Mapping[str, Any]]) -> Any:
    """Return the answer to permission questions: what a person granted is allowed, all else waits for a decision."""
    granted_calls = [[grant["tool"], grant["input"]] for grant in grants]

    def permit(question: PermissionQuestion) -> str:
        call = [question.tool, parse(dump_compact(dict(question.input)))]
        return "allow" if any(is_equal_json(call, granted) for granted in granted_calls) else "later"

    return permit


class RecordedProvider(WorkerProvider):
    """Recorded runs, for demonstrations and tests: their patches are applied to the clone, and no program runs.

    `file`: a `Recording`, absolute or in the organisation.
    """

    has_program = makes_many_calls = False

    def __init__(self, *, file: str, base: Path | None = None) -> None:
        super().__init__(base=base)
        self.harness, self._file = replace(self.harness, name="recorded"), file
        content = _read_file(self._base, file)
        self._runs = parse_document(content, file, Recording, unknown_key_policy="none").value.runs

    def run_worker(self, run: HarnessRun) -> HarnessEnd:
        """Apply the patch of the first recorded run whose text is in the prompt. Raises `RequestRejected` without one."""
        for recorded in self._runs:
            if recorded.contains in run.prompt:
                patch_clone(run.attempt.clone, _read_file(self._base, recorded.patch) if recorded.patch else b"")
                return HarnessEnd(text=recorded.text)
        hint = "choose a harness: docs/workers.md lists the lines of config/models.json"
        raise RequestRejected("these runs are recorded, and this task was not given then", where=self._file, hint=hint)


_NAMES = {name: name for name in ("claude-code", "codex", "pi", "opencode")} | {"gemini-cli": "gemini", "acp": "acp"}
HARNESSES: Mapping[str, type[WorkerProvider]] = {
    **{key: type("HarnessProvider", (WorkerProvider,), {"harness_name": name}) for key, name in _NAMES.items()},
    "harness": WorkerProvider,
    "recorded": RecordedProvider,
}
"""The providers by name, as `config/models.json` has them. "gemini" is a server, and "command" a channel."""


def __getattr__(name: str) -> type[WorkerProvider]:
    if name in HARNESSES:
        return HARNESSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
