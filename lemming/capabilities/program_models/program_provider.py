"""A program as a model: the prompt goes to its standard input, and its standard output is the answer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

from lemming.ext import Capability
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import Unavailable, Unusable
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.llm import model_call
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Message, Reply, Request
from lemming.libraries.permission_bindings import program_permission
from lemming.libraries.processes.supervised_process import SupervisedProcess

OUTPUT_LIMIT_BYTES = 1 << 20
_STDERR_TAIL_BYTES = 4096
_CHECK_INTERVAL_S = 0.1
_HARNESS_PROVIDERS = {"claude": "claude-code", "codex": "codex", "gemini": "acp", "opencode": "opencode", "pi": "pi"}
"""Programs that are coding harnesses, each with the provider that reads its output."""
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "USER", "SHELL", "TERM", "TMPDIR")


class CliProvider(Backend):
    """Runs `command`, a list of words in which `{model}` stands for the model's name, without a shell.

    The program receives only PATH, HOME, LANG, USER, SHELL, TERM, TMPDIR, XDG_* and the variables named in
    `env` from the environment. No provider key is included unless named. The program runs in `cwd` (a folder
    in the organisation or an absolute path). The default is an empty temporary folder, removed afterwards:
    the program then cannot mistake the organisation for its own project, or foreign files for its own. At the
    program's end, at the deadline and at the engine's death, the reaper kills the program and all processes
    started by the program, including daemons (outside Linux: the processes of its process group).

    `effects`: "none" for a program that only prints text, so a failed or interrupted call is made again.
    "outside" for a program that may act, which runs once for each call.
    """

    keeps_deadline = True

    def __init__(
        self,
        *,
        command: list[str],
        env: list[str] | None = None,
        cwd: str | None = None,
        effects: Literal["none", "outside"] = "outside",
        base: Path | None = None,
    ) -> None:
        self._command, self._env = command, env or []
        self.acts_outside = effects == "outside"
        self.remark = describe_harness(command)
        self._cwd = (base or Path()) / cwd if cwd else None

    def complete(self, request: Request) -> Reply:
        """Return the program's output. Output beyond 1 MiB is truncated, with finish "length".

        Raises `Unavailable` with the last line of stderr after a failure, `TimedOut`, and `Unusable` if the
        program cannot start.
        """
        if self._cwd is not None:
            return self._run_program(request, self._cwd)
        with tempfile.TemporaryDirectory(prefix="lemming-", ignore_cleanup_errors=True) as folder:
            return self._run_program(request, Path(folder))

    def _run_program(self, request: Request, folder: Path) -> Reply:
        deadline = Deadline(request.deadline_s)
        program = self._start_program(request.model_name, folder)
        try:
            output, error_output = _exchange(program, _to_text(request.messages).encode(), deadline)
            if len(output) <= OUTPUT_LIMIT_BYTES and not program.wait(deadline.remaining()):
                raise TimeoutError
        except TimeoutError as error:
            raise model_call.timeout_error(request.deadline_s) from error
        finally:
            report = program.close()
        text = output[:OUTPUT_LIMIT_BYTES].decode("utf-8", "replace").strip()
        if len(output) > OUTPUT_LIMIT_BYTES:
            return Reply(text=text, finish="length", model=request.model_name)
        status = self._parse_status(report)
        if status != 0:
            lines = error_output.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise Unavailable(
                f"ended with {_describe_status(status)}: {redacted_excerpt(lines[-1])}", where=self._display_name
            )
        return Reply(text=text, model=request.model_name)

    @property
    def _display_name(self) -> str:
        return f"cli {self._command[0] if self._command else ''}".strip()

    def _start_program(self, model_name: str, folder: Path) -> SupervisedProcess:
        if not self._command:
            raise Unusable("options.command must not be empty", where="cli", hint='set options.command to ["program"]')
        if not folder.is_dir():
            raise Unusable(f"folder {folder} does not exist", where=self._display_name, hint="check options.cwd")
        command = [argument.replace("{model}", model_name) for argument in self._command]
        try:
            return SupervisedProcess(command, folder=folder, environment=self._build_environment())
        except (OSError, ValueError) as error:
            raise self._start_error(str(getattr(error, "strerror", None) or error)) from error

    def _parse_status(self, report: str) -> int:
        """Return the exit status in the reaper's report. Raise without a status."""
        reason, has_start_error, status = report.rpartition("\n")
        if has_start_error:
            raise self._start_error(reason)
        if not status:
            raise Unavailable("ended together with its keeper", where=self._display_name)
        return int(status)

    def _start_error(self, reason: str) -> Unusable:
        hint = f"install {self._command[0]}, or correct options.command in config/models.json"
        return Unusable(f"cannot be started: {reason}", where=self._display_name, hint=hint)

    def _build_environment(self) -> dict[str, str]:
        inherited = {*_INHERITED_VARIABLES, *self._env}
        return {name: value for name, value in os.environ.items() if name in inherited or name.startswith("XDG_")}


def describe_harness(command: list[str]) -> str:
    """Return the reason and the fix for a command that is a coding harness; empty for another program.

    >>> describe_harness(["cat"])
    ''
    """
    program = os.path.basename(command[0]) if command else ""
    if not (provider := _HARNESS_PROVIDERS.get(program)):
        return ""
    return (
        f"{program} is a coding harness: provider cli reads neither its errors nor its costs; "
        f'use provider "{provider}" (docs/workers.md)'
    )


def _to_text(messages: list[Message]) -> str:
    """Return a conversation as one text, with the model's earlier answers marked. Empty without messages."""
    if not messages:
        return ""
    headings = {"assistant": "Your answer was:\n"}
    return "\n\n".join(headings.get(message["role"], "") + message["content"] for message in messages) + "\n"


def _exchange(program: SupervisedProcess, prompt: bytes, deadline: Deadline) -> tuple[bytes, bytes]:
    """Send the prompt to the program and collect output and error tail until both streams close or the program ends.

    Output beyond `OUTPUT_LIMIT_BYTES` ends the exchange. Raises `TimeoutError` at the deadline.
    """
    stdin, stdout, stderr = program.stdin, program.stdout, program.stderr
    os.set_blocking(
        stdin.fileno(), False
    )  # the others are read when something is there; a write waits for room even then
    output, error_output, to_write = bytearray(), bytearray(), memoryview(prompt)
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        selector.register(stderr, selectors.EVENT_READ)
        while {stdout, stderr} & {key.fileobj for key in selector.get_map().values()}:
            if deadline.has_passed:
                raise TimeoutError
            has_ended = program.has_ended
            ready = selector.select(0 if has_ended else min(deadline.remaining(), _CHECK_INTERVAL_S))
            if has_ended and not ready:
                break  # a process it left behind holds the pipes
            for key, _ in ready:
                if key.fileobj is stdin:
                    to_write = to_write[_write_some(stdin, to_write) :]
                    if not to_write:
                        selector.unregister(stdin)
                        stdin.close()
                elif chunk := os.read(key.fd, 1 << 16):
                    (output if key.fileobj is stdout else error_output).extend(chunk)
                    del error_output[:-_STDERR_TAIL_BYTES]
                    if len(output) > OUTPUT_LIMIT_BYTES:
                        return bytes(output), bytes(error_output)
                else:
                    selector.unregister(key.fileobj)
    return bytes(output), bytes(error_output)


def _write_some(stdin: IO[bytes], remaining: memoryview) -> int:
    """Return the number of bytes written. A program with a closed input counts as fully served."""
    try:
        return os.write(stdin.fileno(), remaining)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(remaining)  # it need not read all


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


class ProgramsCapability(Capability):
    """Programs as models, given by lines of `config/models.json` with the provider `cli`."""

    name = "programs"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield a permission for the program of each line, because any resume may use any line."""
    for key, entry in config.models.items():
        if entry.provider == "cli":
            yield program_permission(org, f"{paths.MODELS_FILE} {key}", entry.options)
