"""Model calls made by the workers of a `distributed` cluster, for those who outgrow one machine.

Only the call travels: the engine takes the turns, and reads and writes every file itself. An answer comes
back to the engine as if it had called, so journal, recovery and replay know nothing of the cluster. A worker
that dies takes its call with it. The scheduler gives that call to another worker, which does not make it: the
engine alone decides whether to pay for an attempt. docs/decisions/0005-executors.md says why, and why Dask.
"""

from __future__ import annotations

import logging
import pickle
import platform
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import LemmingError, ProviderError, Unavailable, Unusable
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.jsontext import compact, parse
from lemming.kernel.base.version import __version__
from lemming.kernel.llm.calls import ask, timed_out
from lemming.kernel.plugins.registry import load_installed_plugins, load_plugins
from lemming.kernel.providers import Backend, LLMProvider, Reply, Request, make_provider

if TYPE_CHECKING:
    from distributed import Client


ANSWER_S = 1.0
WORKERS_SEEN_S = 2.0
"""For so long the cluster is taken to have the workers that it had."""


@dataclass(frozen=True)
class Line:
    """What a worker needs to know of the line in `config/models.json` whose model it asks.

    `run` differs from one engine to the next, so that no worker answers from what it read for an earlier one.
    """

    provider: str
    options: bytes
    base: str
    plugins: tuple[str, ...] = ()
    run: str = ""
    version: str = __version__


def answer(package: bytes, attempt: str) -> bytes:
    """Ask a model, on a worker: from a pickled `Line` and `Request` to a pickled `Reply` or `ProviderError`.

    `attempt` names the call: where another worker has begun it, it is not made again. The error is returned:
    one that is raised ends up in the worker's log, and with it the prompt.
    """
    line, request = pickle.loads(package)  # noqa: S301 - whoever may send a cluster work may run code on it
    try:
        _begin(attempt)
        return pickle.dumps(ask(_provider_on_worker(line), request))
    except ProviderError as error:
        return pickle.dumps(error)


def _begin(attempt: str) -> None:
    """Announce a call to the scheduler before it is made. Raises `Unavailable` for one that was begun before.

    The scheduler hands a dead worker's calls to others, up to three times and whatever `retries` says. Only
    it outlives the workers, so the announcement is a flag there.
    """
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    try:
        is_begun = sync(worker.loop, worker.scheduler.event_is_set, name=attempt)
        if not is_begun:
            sync(worker.loop, worker.scheduler.event_set, name=attempt)
    except OSError as error:
        raise _cluster_error(f"the worker cannot reach its scheduler: {error}", may_be_paid=False) from error
    if is_begun:
        raise _cluster_error("the worker that made the call died: it may have been answered, and paid for")


def _cluster_error(message: str, *, where: str = "", hint: str = "", may_be_paid: bool = True) -> Unavailable:
    """Return an error of the cluster: it says nothing about the model's server."""
    error = Unavailable(message, where=where, hint=hint)
    error.may_be_paid, error.is_of_backend = may_be_paid, False
    return error


def _errand() -> Callable[[bytes, str], bytes]:
    """Return `answer` in a form that travels as code.

    Scheduler and workers unpack a message before they run anything. One that refers to a module they do not
    have ends the connection, and the worker; code that cannot import it is an error like any other.
    """

    def answer(package: bytes, attempt: str) -> bytes:
        from lemming.capabilities.cluster import calls

        return calls.answer(package, attempt)

    return answer


@lru_cache(maxsize=64)
def _provider_on_worker(line: Line) -> LLMProvider:
    if line.version != __version__:
        raise _unlike(f"has lemming-engine {__version__}, and the engine {line.version}", line)
    try:
        load_plugins(line.plugins)
        load_installed_plugins()
        return make_provider(line.provider, parse(line.options), base=Path(line.base), plugins=line.plugins)
    except LemmingError as error:  # the engine has made the same provider
        raise _unlike(f"cannot make provider {line.provider}: {error}", line) from error


def _unlike(what: str, line: Line) -> Unusable:
    hint = f"give every worker the engine's packages and plugins, and the folder {line.base} under that path"
    return Unusable(f"worker on {platform.node()} {what}", hint=hint)


@dataclass(eq=False)
class DaskCalls:
    """A cluster, by the address of its scheduler; connected to when first needed. Safe for many threads.

    A connection takes `connect_s` at most: a scheduler that does not answer is tried again for that long.
    """

    address: str
    connect_s: float = 10.0
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connection: Future[Client] | None = None
    _has_workers: Deadline = field(default_factory=lambda: Deadline.after(0))

    def provider(
        self, inner: LLMProvider, name: str, options: dict[str, Any], *, base: Path, plugins: list[str]
    ) -> LLMProvider:
        """Return a provider that asks from a worker what `inner`, made of `name` and `options`, would ask."""
        line = Line(name, compact(options), str(base.absolute()), tuple(plugins), self._run)
        return _DaskProvider(self, line, inner)

    def ask(self, line: Line, request: Request) -> Reply:
        """Return the answer that a worker got; raise the error that it got, or one that tells of the cluster.

        A call that nobody waits for any more is taken back: at its deadline, or when Ctrl-C ends the wait.
        """
        deadline, attempt = Deadline.after(request.deadline_s), uuid.uuid4().hex
        client = self._client(request.deadline_s)
        self._require_workers(client, deadline)
        # Not pure: the scheduler would give a question that is asked again its earlier answer.
        future = client.submit(_errand(), pickle.dumps((line, request)), attempt, pure=False)
        try:
            outcome = pickle.loads(future.result(deadline.remaining()))  # noqa: S301 - see `answer`
        except TimeoutError:
            raise timed_out(request.deadline_s) from None
        except (CancelledError, OSError) as error:
            raise self._unavailable("the connection to the cluster was lost", may_be_paid=True) from error
        except ImportError as error:
            raise self._unlike(error) from error
        else:
            # No worker will be given it any more, so the scheduler need not remember it.
            client.loop.add_callback(_forget, client, attempt)
        finally:
            future.release()  # sends a note; `cancel` would wait for a scheduler that may be gone
        if isinstance(outcome, ProviderError):
            raise outcome
        return cast(Reply, outcome)

    def _require_workers(self, client: Client, deadline: Deadline) -> None:
        """Wait for the first worker, for `connect_s` at most. Raises `Unavailable` where none comes."""
        if not self._has_workers.has_passed:
            return
        try:
            client.wait_for_workers(1, timeout=min(deadline.remaining(), self.connect_s))
        except TimeoutError:
            hint = f"start some: dask worker {self.address} --nthreads 64"
            no_workers = "the cluster has no workers"
            raise _cluster_error(no_workers, where=self.address, hint=hint, may_be_paid=False) from None
        except OSError as error:
            raise self._unavailable("the scheduler does not answer") from error
        self._has_workers = Deadline.after(WORKERS_SEEN_S)

    def workers(self) -> dict[str, int]:
        """Return how many calls each worker makes at once, by the worker's address.

        Raises `Unavailable` when there is no scheduler, or it does not answer in time.
        """
        client = self._client(self.connect_s)
        try:
            found = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_S)
        except (TimeoutError, OSError) as error:
            raise self._unavailable("the scheduler does not answer") from error
        return {address: worker["nthreads"] for address, worker in found["workers"].items()}

    def close(self) -> None:
        """Leave the cluster; calls that are under way are taken back."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            _leave(connection)

    def _client(self, within_s: float) -> Client:
        """Return the connection; all who need it while it is made share one attempt."""
        with self._lock:
            former = self._connection
            is_mine = former is None or not _is_usable(former)
            connection: Future[Client] = Future() if is_mine or former is None else former
            self._connection = connection
        if is_mine:
            if former is not None:
                _leave(former)
            self._connect(connection, min(within_s, self.connect_s))
        try:
            return connection.result(within_s)
        except TimeoutError:
            raise timed_out(within_s) from None

    def _connect(self, connection: Future[Client], within_s: float) -> None:
        try:
            connection.set_result(_new_client(self.address, within_s))
        except ImportError:
            hint = install_line("dask")
            connection.set_exception(Unusable("distributed is not installed", hint=hint))
        except OSError as error:
            connection.set_exception(self._unavailable(f"no scheduler answers: {error}"))
        except BaseException as error:
            connection.set_exception(error)
            raise

    def _unlike(self, error: ImportError) -> Unusable:
        hint = f"install lemming-engine {__version__} on every worker"
        return Unusable(f"a worker cannot run the call: {error}", where=self.address, hint=hint)

    def _unavailable(self, what: str, *, may_be_paid: bool = False) -> Unavailable:
        hint = 'start it (dask scheduler), or correct "executor_address" in config/org.json'
        return _cluster_error(what, where=self.address, hint=hint, may_be_paid=may_be_paid)


class _DaskProvider(Backend):
    """One line of `config/models.json` whose calls are made by a cluster."""

    keeps_deadline = True

    def __init__(self, calls: DaskCalls, line: Line, inner: LLMProvider) -> None:
        self.takes_schema, self.takes_tools = inner.takes_schema, inner.takes_tools
        self.is_person, self.prefers_tools = inner.is_person, inner.prefers_tools
        self.can_be_down, self.leaves_out = inner.can_be_down, inner.leaves_out
        self._calls, self._line = calls, line

    def complete(self, request: Request) -> Reply:
        """Return the answer that a worker got."""
        return self._calls.ask(self._line, request)


async def _forget(client: Client, attempt: str) -> None:
    with suppress(OSError):  # a scheduler that is gone has forgotten it
        await client.scheduler.event_clear(name=attempt)


def _new_client(address: str, within_s: float) -> Client:
    from distributed import Client

    # What goes wrong is told by the errors of the calls.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    return Client(address, timeout=within_s, set_as_default=False, name="lemming")


def _is_usable(connection: Future[Client]) -> bool:
    """Whether a connection is being made or stands. One that was lost is made anew, not waited for."""
    if not connection.done():
        return True
    return connection.exception() is None and connection.result().status == "running"


def _leave(connection: Future[Client]) -> None:
    if connection.done() and connection.exception() is None:
        with suppress(TimeoutError):  # of one that is gone, and says nothing any more
            connection.result().close(timeout=1)
