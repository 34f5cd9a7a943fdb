"""Small language model inside this process, run by llama.cpp without network access.

Equal requests give equal answers on one machine: one slot, a fixed number of threads, prompts always read in
the same parts (`PrefixCache`), and temperature 0 by default.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.embedded_models.model_weights import verify_weights
from lemming.ext import Capability, ConfigError
from lemming.kernel.base.blocking_deadline import Deadline, wait_slices
from lemming.kernel.base.errors import RequestRejected, Unavailable, UnknownModel, Unusable
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.llm import model_call
from lemming.kernel.providers import Backend, Finish, Reply, Request
from lemming.libraries.concurrency.process_chunks import count_usable_processors
from lemming.libraries.optional_packages import install_command
from lemming.libraries.streaming import DeltaCallback, WordBuffer

if TYPE_CHECKING:
    from xllamacpp import Server

# The prompt is read this many tokens at a time; in between, it can be stopped. Another number gives
# slightly other answers.
_BATCH_TOKENS = 512


class _Settings(NamedTuple):
    n_ctx: int
    threads: int


class LocalProvider(Backend):
    """Answers with an embedded model: from the catalogue by name, or from the GGUF file at `path`.

    `n_ctx`: maximum length of prompt and answer together in tokens, about 24 MB per 1,000. `threads`: number
    of working threads; one processor is always left free.
    """

    takes_schema = True
    keeps_deadline = True
    max_concurrent = 1

    def __init__(self, *, n_ctx: int = 4096, path: str | None = None, threads: int = 1) -> None:
        if threads < 1:
            message = f"options.threads must be 1 or more, got {threads}"
            raise ConfigError(message, where="config/models.json", hint="use 1 on a machine with two processors")
        self._path, self._settings = (path, _Settings(n_ctx, min(threads, max(1, count_usable_processors() - 1))))
        self.context_tokens = n_ctx

    def complete(self, request: Request) -> Reply:
        """Return the answer with the usage.

        Raises `UnknownModel` for missing weights, `RequestRejected` for too long a prompt or without
        llama.cpp, and `TimedOut` after stopping the model.
        """
        return self._complete(request, None)

    def complete_streaming(self, request: Request, on_delta: DeltaCallback) -> Reply:
        """Return the answer with the usage, and pass text to the callback as it arrives."""
        word_stream = WordBuffer(on_delta)
        try:
            return self._complete(request, word_stream.feed)
        finally:
            word_stream.flush()

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request in llama.cpp's format."""
        return _request_body(request)

    def _complete(self, request: Request, on_delta: DeltaCallback | None) -> Reply:
        _import_library()  # before the advice to download weights that nothing here could run
        file = Path(self._path).expanduser() if self._path else verify_weights(request.model_name)
        if not file.is_file():
            hint = "check options.path in config/models.json"
            raise UnknownModel("the weights file does not exist", where=str(file), hint=hint)
        return _get_model(file.resolve(), self._settings).answer(request, on_delta, self.stopping)


class _LoadedModel:
    """A loaded model and the only working thread.

    Two requests at once would change each other's answers. On the main thread, Ctrl-C would be raised inside
    llama.cpp's callback, and lost together with a piece of the answer.
    """

    def __init__(self, file: Path, settings: _Settings) -> None:
        self._server = _load_server(file, settings)
        self._prompts = PrefixCache(self._server.handle_chat_completions)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lemming-local")

    def answer(self, request: Request, on_delta: DeltaCallback | None, stop: threading.Event | None) -> Reply:
        """Return the model's answer.

        Raises `TimedOut` at the deadline, which includes the wait for other requests. A stop interrupts the answer:
        nobody bills for the answer, and completion may take minutes.
        """
        location = f"local {request.model_name}"
        streamed = _StreamedAnswer(on_delta=on_delta)
        work = self._worker.submit(self._ask, _request_body(request), streamed)
        try:
            _await_work(work, request, stop)
        except ValueError as error:  # a schema that llama.cpp cannot turn into a grammar
            raise RequestRejected(redacted_excerpt(str(error)), where=location) from error
        finally:
            streamed.is_wanted = False
            work.cancel()
        if streamed.refusal:
            hint = "shorten the prompt, or raise options.n_ctx in config/models.json"
            raise RequestRejected(redacted_excerpt(streamed.refusal), where=location, hint=hint)
        if not streamed.is_complete:
            raise Unavailable("the answer ended in the middle", where=location)
        return streamed.to_reply(request.model_name)

    def _ask(self, body: dict[str, Any], answer: _StreamedAnswer) -> None:
        answer.cached_tokens = self._prompts.ask(body, answer.on_chunk)


def _await_work(work: Future[None], request: Request, stop: threading.Event | None) -> None:
    for seconds in wait_slices(Deadline(request.deadline_s), stop, grace_s=0):
        if work in wait([work], seconds).done:
            work.result()
            return
    if stop is not None and stop.is_set():
        raise Unavailable("the answer was cancelled: the engine is stopping", where=request.model_name)
    raise model_call.timeout_error(request.deadline_s)


@dataclass
class _StreamedAnswer:
    """Collects a streamed answer, and stops the model when nobody waits any more."""

    pieces: list[str] = field(default_factory=list)
    finish: Finish = "stop"
    usage: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    is_complete: bool = False
    is_wanted: bool = True
    cached_tokens: int = 0
    on_delta: DeltaCallback | None = None

    def on_chunk(self, pieces: dict[str, Any] | list[dict[str, Any]]) -> bool:
        """Add a piece of the stream; return True to stop the model."""
        for chunk in pieces if isinstance(pieces, list) else [pieces]:
            if "error" in chunk:
                self.refusal = str(chunk["error"].get("message", chunk["error"]))
            for choice in chunk.get("choices", []):
                self.pieces.append(choice["delta"].get("content") or "")
                if self.on_delta and self.is_wanted:
                    self.on_delta(self.pieces[-1])
                if reason := choice.get("finish_reason"):
                    self.is_complete, self.finish = True, "length" if reason == "length" else "stop"
            self.usage = chunk.get("usage") or self.usage
        return not self.is_wanted

    def to_reply(self, model_name: str) -> Reply:
        """Return the collected reply."""
        return Reply(
            text="".join(self.pieces),
            input_tokens=self.usage.get("prompt_tokens"),
            output_tokens=self.usage.get("completion_tokens"),
            cached_tokens=self.cached_tokens,
            finish=self.finish,
            model=model_name,
        )


def _request_body(request: Request) -> dict[str, Any]:
    """Return the request in llama.cpp's format, streamed so that the model can be stopped."""
    body: dict[str, Any] = {
        "messages": request.messages,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature or 0.0,
        "seed": request.seed % 2**32,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
    }
    if request.schema is not None:
        named_schema = {"name": "turn", "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named_schema}
    return body


_models: dict[tuple[int, Path, _Settings], _LoadedModel] = {}
_loading = threading.Lock()


def _get_model(file: Path, settings: _Settings) -> _LoadedModel:
    """Return the loaded model, cached by file. A forked child cannot use the parent's."""
    key = (os.getpid(), file, settings)
    with _loading:
        if key not in _models:
            _models[key] = _LoadedModel(file, settings)
        return _models[key]


def _import_library() -> Any:
    """Return llama.cpp. Raises `Unusable` if missing."""
    try:
        import xllamacpp
    except ImportError as error:
        hint = install_command("local")
        raise Unusable("xllamacpp is not installed", where="local", hint=hint) from error
    return xllamacpp


def _load_server(file: Path, model_settings: _Settings) -> Server:
    xllamacpp = _import_library()
    settings = xllamacpp.CommonParams()
    settings.model.path = str(file)
    settings.n_ctx, settings.n_parallel, settings.cache_ram_mib = model_settings.n_ctx, 1, MEMORY_MIB
    settings.n_batch = settings.n_ubatch = _BATCH_TOKENS
    for cpu in (settings.cpuparams, settings.cpuparams_batch):
        # More threads than idle cores make it many times slower, and another number other answers: so it is
        # fixed, and does not follow the load.
        cpu.n_threads, cpu.poll = model_settings.threads, 0
    settings.verbosity = -1
    # The library always listens on a loopback port; with an unknown random key, no other process can use it.
    settings.api_keys = [secrets.token_hex(16)]
    settings.ui = settings.endpoint_slots = False
    try:
        return xllamacpp.Server(settings)
    except RuntimeError as error:
        hint = "download it again with `lemming models pull`: the file may be damaged"
        raise Unusable("the model cannot be loaded", where=str(file), hint=hint) from error


class EmbeddedModelsCapability(Capability):
    """Embedded models: entries of `config/models.json` with the provider `local`."""

    name = "embedded"


Json = dict[str, Any]
OnPieces = Callable[[Any], bool]
"""Takes one or more pieces of the stream; returns True to stop the model."""

MEMORY_MIB = 256
"""Maximum bytes of llama.cpp's cache of prompts."""
_MIN_PREFIX_CHARS = 200
_MAX_PREFIXES = 256


class PrefixCache:
    """Calls llama.cpp in two parts. `send` takes a request's body and runs on one thread."""

    def __init__(self, send: Callable[[Json, OnPieces], object]) -> None:
        self._send = send
        # By the text of the first part: number of tokens shared by prompts, for parts read from the start.
        self._lengths: OrderedDict[str, int] = OrderedDict()

    def ask(self, body: Json, on_pieces: OnPieces) -> int:
        """Send a request; return the number of prompt tokens reused from an earlier request."""
        text = _get_prefix(body["messages"])
        if not text:
            self._send({**body, "cache_prompt": False}, on_pieces)
            return 0
        if length := self._lengths.get(text):
            self._lengths.move_to_end(text)
            if self._read_prefix(body, on_pieces, reuse=True) == length and self._complete_rest(
                body, on_pieces, length
            ):
                return length
            self._lengths.pop(text)
        if self._read_prefix(body, on_pieces, reuse=False) is None:  # the model's template wants a question in it
            self._send({**body, "cache_prompt": False}, on_pieces)
            return 0
        if length := self._complete_rest(body, on_pieces):
            self._lengths[text] = length
            while len(self._lengths) > _MAX_PREFIXES:
                self._lengths.popitem(last=False)
        return 0

    def _read_prefix(self, body: Json, on_pieces: OnPieces, *, reuse: bool) -> int | None:
        """Read the first part, or cut off the rest; return the number of tokens already read."""
        progress = _ReuseMonitor(lambda _: on_pieces([]))
        part = {"messages": body["messages"][:1], "max_tokens": 0, "cache_prompt": reuse}
        common = ("temperature", "seed", "stream", "stream_options", "return_progress")
        self._send({**{key: body[key] for key in common}, **part}, progress.on_pieces)
        return progress.reused

    def _complete_rest(self, body: Json, on_pieces: OnPieces, expected: int | None = None) -> int:
        """Read the rest and answer. Return the number of reused tokens, or 0 if unexpected, with nothing passed on."""
        progress = _ReuseMonitor(on_pieces, expected)
        self._send({**body, "cache_prompt": True}, progress.on_pieces)
        return 0 if progress.is_unexpected else progress.reused or 0


class _ReuseMonitor:
    """Passes a stream on; records the number of reused tokens, and stops an unexpected reuse."""

    def __init__(self, on_pieces: OnPieces, expected: int | None = None) -> None:
        self._on_pieces, self._expected = on_pieces, expected
        self.reused: int | None = None
        self.is_unexpected = False

    def on_pieces(self, pieces: Json | list[Json]) -> bool:
        """Pass a piece of the stream on; return True to stop the model."""
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            if self.reused is None and "prompt_progress" in piece:
                self.reused = int(piece["prompt_progress"]["cache"])
                self.is_unexpected = self._expected not in (None, self.reused)
        return self.is_unexpected or self._on_pieces(pieces)


def _get_prefix(messages: list[Json]) -> str:
    """Return the text of the system message, or an empty string if too short for a separate call."""
    first = messages[0] if len(messages) > 1 else {}
    text = first.get("content") if first.get("role") == "system" else ""
    return text if isinstance(text, str) and len(text) >= _MIN_PREFIX_CHARS else ""
