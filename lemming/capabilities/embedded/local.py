"""A small language model inside this process, by way of llama.cpp. It never reaches the network.

The same request gives the same answer, on one machine: one slot, a fixed number of threads, prompts that are
always read in the same parts (`prefixes`), and temperature 0 unless the request sets one.
"""

from __future__ import annotations

import os
import secrets
import threading
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.embedded.prefixes import MEMORY_MIB, PrefixCache
from lemming.capabilities.embedded.weights import checked_weights
from lemming.kernel.base.deadlines import Deadline, wait_slices
from lemming.kernel.base.errors import ConfigError, RequestRejected, Unavailable, UnknownModel, Unusable
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.llm import calls
from lemming.kernel.llm.streaming import Hear, WholeWords
from lemming.kernel.llm.tokens import tokens_at
from lemming.kernel.providers import Backend, Finish, Reply, Request

if TYPE_CHECKING:
    from xllamacpp import Server

# The prompt is read this many tokens at a time; in between, it can be stopped. Another number gives
# slightly other answers.
_BATCH_TOKENS = 512
COUNT_PATH = "/v1/chat/completions/input_tokens"
COUNT_DEADLINE_S = 10.0
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class _Settings(NamedTuple):
    n_ctx: int
    threads: int


class LocalProvider(Backend):
    """Answers with an embedded model: one of the catalogue by its name, or the GGUF file at `path`.

    `n_ctx` is the longest prompt and answer together, in tokens; each 1,000 of them take about 24 MB.
    `threads` is how many work on it; one processor is left free, however many are asked for.
    """

    takes_schema = True
    keeps_deadline = True
    max_concurrent = 1

    def __init__(self, *, n_ctx: int = 4096, path: str | None = None, threads: int = 1) -> None:
        if threads < 1:
            message = f"options.threads must be 1 or more, got {threads}"
            raise ConfigError(message, where="config/models.json", hint="1 is right on two processors")
        self._path, self._settings = path, _Settings(n_ctx, min(threads, max(1, usable_processors() - 1)))
        self.context_tokens = n_ctx

    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage.

        Raises `UnknownModel` when the weights are missing, `RequestRejected` when the prompt is too long
        or llama.cpp is not installed, and `TimedOut`, having stopped the model.
        """
        return self._complete(request, None)

    def complete_heard(self, request: Request, hear: Hear) -> Reply:
        """Return the answer with its usage; its text is heard as it comes."""
        told = WholeWords(hear)
        try:
            return self._complete(request, told.hear)
        finally:
            told.end()

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request in llama.cpp's form."""
        return _body(request)

    def count_tokens(self, request: Request) -> int | None:
        """Return the input tokens of a request as llama.cpp counts them. Raises as `complete`."""
        return tokens_at(self._model_of(request.model_name).post(COUNT_PATH, _body(request)), "input_tokens")

    def count_texts(self, model_name: str, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text by the model's tokenizer. Raises as `complete`."""
        model = self._model_of(model_name)
        said = [model.post("/tokenize", {"content": text}) for text in texts]
        counts = [len(it["tokens"]) for it in said if isinstance(it, dict) and "tokens" in it]
        return counts if len(counts) == len(texts) else None

    def _complete(self, request: Request, hear: Hear | None) -> Reply:
        return self._model_of(request.model_name).answer(request, hear, self.stopping)

    def _model_of(self, name: str) -> _Model:
        """Return the loaded model; raise `UnknownModel`, or `Unusable`."""
        _library()  # before anybody is told to fetch weights that nothing here could use
        file = Path(self._path).expanduser() if self._path else checked_weights(name)
        if not file.is_file():
            hint = "check options.path in config/models.json"
            raise UnknownModel("no such file of weights", where=str(file), hint=hint)
        return _model(file.resolve(), self._settings)


class _Model:
    """A loaded model and the one thread that works with it.

    Two requests at once would change each other's answers. And on the main thread, Ctrl-C would be
    raised inside llama.cpp's callback, which loses it and a piece of the answer with it.
    """

    def __init__(self, file: Path, settings: _Settings) -> None:
        self._key = secrets.token_hex(16)
        self._server = _load(file, settings, self._key)
        self._prompts = PrefixCache(self._server.handle_chat_completions)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lemming-local")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return what the server inside this process says to a question that needs no model."""
        asked = urllib.request.Request(  # noqa: S310 - its own address
            f"{self._server.listening_address}{path}",
            compact({**body, "stream": False}),
            {"authorization": f"Bearer {self._key}", "content-type": "application/json"},
        )
        try:
            with _WITHOUT_PROXY.open(asked, timeout=COUNT_DEADLINE_S) as answer:
                return parse(answer.read())
        except (OSError, JsonProblem) as error:
            raise Unavailable(f"the tokens were not counted: {excerpt(str(error))}", where="local") from error

    def answer(self, request: Request, hear: Hear | None, stop: threading.Event | None) -> Reply:
        """Return the model's answer; raise `TimedOut` at the deadline, waiting for others included.

        A stop breaks it off: nobody bills for it, and it may take minutes.
        """
        where = f"local {request.model_name}"
        answer = _Answer(told_to=hear)
        work = self._worker.submit(self._ask, _body(request), answer)
        try:
            _await_work(work, request, stop)
        except ValueError as error:  # a schema that llama.cpp cannot turn into a grammar
            raise RequestRejected(excerpt(str(error)), where=where) from error
        finally:
            answer.is_wanted = False
            work.cancel()
        if answer.refusal:
            hint = "shorten the prompt, or raise options.n_ctx in config/models.json"
            raise RequestRejected(excerpt(answer.refusal), where=where, hint=hint)
        if not answer.is_complete:
            raise Unavailable("the answer ended in the middle", where=where)
        return answer.reply(request.model_name)

    def _ask(self, body: dict[str, Any], answer: _Answer) -> None:
        answer.cached_tokens = self._prompts.ask(body, answer.hear)


def _await_work(work: Future[None], request: Request, stop: threading.Event | None) -> None:
    for seconds in wait_slices(Deadline(request.deadline_s), stop, grace_s=0):
        if work in wait([work], seconds).done:
            work.result()
            return
    if stop is not None and stop.is_set():
        raise Unavailable("the answer was broken off: the engine is to end", where=request.model_name)
    raise calls.timed_out(request.deadline_s)


@dataclass
class _Answer:
    """Collects an answer as it comes, and says stop when nobody waits for it any more."""

    pieces: list[str] = field(default_factory=list)
    finish: Finish = "stop"
    usage: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    is_complete: bool = False
    is_wanted: bool = True
    cached_tokens: int = 0
    told_to: Hear | None = None

    def hear(self, heard: dict[str, Any] | list[dict[str, Any]]) -> bool:
        """Take one piece of the stream; return whether the model is to stop."""
        for chunk in heard if isinstance(heard, list) else [heard]:
            self._take(chunk)
        return not self.is_wanted

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.refusal = str(chunk["error"].get("message", chunk["error"]))
        for choice in chunk.get("choices", []):
            self.pieces.append(choice["delta"].get("content") or "")
            if self.told_to and self.is_wanted:
                self.told_to(self.pieces[-1])
            if reason := choice.get("finish_reason"):
                self.is_complete, self.finish = True, "length" if reason == "length" else "stop"
        self.usage = chunk.get("usage") or self.usage

    def reply(self, model_name: str) -> Reply:
        """Return what was collected."""
        return Reply(
            text="".join(self.pieces),
            input_tokens=self.usage.get("prompt_tokens"),
            output_tokens=self.usage.get("completion_tokens"),
            cached_tokens=self.cached_tokens,
            finish=self.finish,
            model=model_name,
        )


def _body(request: Request) -> dict[str, Any]:
    """Return the request in llama.cpp's form, streamed so that it can be stopped."""
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
        wanted = {"name": "turn", "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return body


# --- loading -----------------------------------------------------------------------------------

_models: dict[tuple[int, Path, _Settings], _Model] = {}
_loading = threading.Lock()


def _model(file: Path, settings: _Settings) -> _Model:
    """Return the loaded model: one is kept for each file. A forked child cannot use its parent's."""
    key = (os.getpid(), file, settings)
    with _loading:
        if key not in _models:
            _models[key] = _Model(file, settings)
        return _models[key]


def _library() -> Any:
    """Return llama.cpp; raise `Unusable` where it is not installed."""
    try:
        import xllamacpp
    except ImportError as error:
        hint = install_line("local")
        raise Unusable("xllamacpp is not installed", where="local", hint=hint) from error
    return xllamacpp


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _load(file: Path, wanted: _Settings, key: str) -> Server:
    xllamacpp = _library()
    settings = xllamacpp.CommonParams()
    settings.model.path = str(file)
    settings.n_ctx, settings.n_parallel, settings.cache_ram_mib = wanted.n_ctx, 1, MEMORY_MIB
    settings.n_batch = settings.n_ubatch = _BATCH_TOKENS
    for cpu in (settings.cpuparams, settings.cpuparams_batch):
        # More threads than idle cores make it many times slower, and another number other answers: so it is
        # fixed, and does not follow the load.
        cpu.n_threads, cpu.poll = wanted.threads, 0
    settings.verbosity = -1
    # The library always listens on a loopback port; with a key that nobody knows, nobody can use it.
    settings.api_keys = [key]
    settings.ui = settings.endpoint_slots = False
    try:
        return xllamacpp.Server(settings)
    except RuntimeError as error:
        hint = "the file may be damaged: `lemming models pull` fetches it again"
        raise Unusable("the model cannot be loaded", where=str(file), hint=hint) from error
