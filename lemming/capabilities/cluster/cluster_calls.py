"""Model calls made by the workers of a `distributed` cluster, for organisations too large for one machine.

Only the call moves: the engine runs the turns, and reads and writes every file itself. Answers return to the engine
like local ones, so journal, recovery and replay are independent of the cluster. If a worker dies during a call, the
scheduler gives the call to another worker, which refuses the call: the engine alone decides about paying for another
attempt. Reasons for this design and for Dask: docs/decisions.md, decision 5.
"""

from __future__ import annotations

import logging
import pickle
import platform
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lemming.ext import Capability, LemmingError
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import ProviderError, Unavailable, Unusable
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.base.version import __version__
from lemming.kernel.llm.model_call import call_provider, timeout_error
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_installed_plugins, load_plugins
from lemming.kernel.providers import Backend, LLMProvider, Reply, Request, make_provider
from lemming.libraries.optional_packages import install_command
from lemming.libraries.permission_bindings import code_permission

if TYPE_CHECKING:
    from distributed import Client

SCHEDULER_TIMEOUT_S = 1.0
WORKERS_CACHE_S = 2.0
"""For so long the cluster is taken to have the workers that it had."""


@dataclass(frozen=True)
class WorkerModelEntry:
    """Model entry of `config/models.json` in the form that a worker needs.

    `run` differs between engine processes, so that no worker answers from a cache of an earlier process.
    """

    provider: str
    options: bytes
    base: str
    plugins: tuple[str, ...] = ()
    run: str = ""
    version: str = __version__


def run_call(package: bytes, attempt: str) -> bytes:
    """Call a model on a worker: from a pickled `WorkerModelEntry` and `Request` to a pickled `Reply` or
    `ProviderError`.

    `attempt` names the call, which is refused if another worker has begun the same attempt. Errors are
    returned rather than raised, because a raised error would put the prompt into the worker's log.
    """
    entry, request = pickle.loads(package)  # noqa: S301 - whoever may send a cluster work may run code on it
    try:
        _announce_call(attempt)
        return pickle.dumps(call_provider(_get_provider_on_worker(entry), request))
    except ProviderError as error:
        return pickle.dumps(error)


def _announce_call(attempt: str) -> None:
    """Announce a call to the scheduler before the call. Raises `Unavailable` for an attempt begun before.

    The scheduler gives a dead worker's calls to others, up to three times, regardless of `retries`. Only the
    scheduler outlives the workers, so the announcement is a flag there.
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
        raise _cluster_error("the worker died during the call, which may have been answered and billed")


def _cluster_error(message: str, *, location: str = "", hint: str = "", may_be_paid: bool = True) -> Unavailable:
    """Return an error of the cluster, which does not concern the model's server."""
    error = Unavailable(message, where=location, hint=hint)
    error.may_be_paid, error.is_of_backend = may_be_paid, False
    return error


def _portable_run_call() -> Callable[[bytes, str], bytes]:
    """Return `run_call` in a form that is sent as code.

    Scheduler and workers unpack a message before running anything. A reference to a missing module ends the
    connection and the worker; a failing import inside the code is an ordinary error.
    """

    def run_call(package: bytes, attempt: str) -> bytes:
        from lemming.capabilities.cluster import cluster_calls

        return cluster_calls.run_call(package, attempt)

    return run_call


@lru_cache(maxsize=64)
def _get_provider_on_worker(entry: WorkerModelEntry) -> LLMProvider:
    if entry.version != __version__:
        raise _mismatch_error(f"has lemming-engine {__version__}, and the engine {entry.version}", entry)
    try:
        load_plugins(entry.plugins)
        load_installed_plugins()
        return make_provider(entry.provider, parse(entry.options), base=Path(entry.base), plugins=entry.plugins)
    except LemmingError as error:  # the engine has made the same provider
        raise _mismatch_error(f"cannot make provider {entry.provider}: {error}", entry) from error


def _mismatch_error(problem: str, entry: WorkerModelEntry) -> Unusable:
    hint = f"give every worker the engine's packages and plugins, and the folder {entry.base} under that path"
    return Unusable(f"worker on {platform.node()} {problem}", hint=hint)


@dataclass(eq=False)
class DaskCalls:
    """A cluster at a scheduler's address, connected on first use. Safe for many threads.

    Connecting takes at most `connect_s` seconds, with retries if the scheduler does not answer.
    """

    address: str
    connect_s: float = 10.0
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connection: Future[Client] | None = None
    _has_workers: Deadline = field(default_factory=lambda: Deadline(0))

    def wrap_provider(
        self, inner: LLMProvider, name: str, options: dict[str, Any], *, base: Path, plugins: list[str]
    ) -> LLMProvider:
        """Return a provider whose calls run on a worker. `inner`: the local provider made from `name` and `options`."""
        entry = WorkerModelEntry(name, dump_compact(options), str(base.absolute()), tuple(plugins), self._run)
        return _DaskProvider(self, entry, inner)

    def submit(self, entry: WorkerModelEntry, request: Request) -> Reply:
        """Return a worker's answer, or raise its or the cluster's error. The deadline or Ctrl-C withdraws the call."""
        deadline, attempt = Deadline(request.deadline_s), uuid.uuid4().hex
        client = self._get_client(request.deadline_s)
        self._require_workers(client, deadline)
        # Not pure: the scheduler would give a question that is asked again its earlier answer.
        future = client.submit(_portable_run_call(), pickle.dumps((entry, request)), attempt, pure=False)
        try:
            outcome = pickle.loads(future.result(deadline.remaining()))  # noqa: S301 - see `answer`
        except TimeoutError:
            raise timeout_error(request.deadline_s) from None
        except (CancelledError, OSError) as error:
            raise self._unavailable_error("the connection to the cluster was lost", may_be_paid=True) from error
        except ImportError as error:
            hint = f"install lemming-engine {__version__} on every worker"
            raise Unusable(f"a worker cannot run the call: {error}", where=self.address, hint=hint) from error
        else:
            # No worker will be given it any more, so the scheduler need not remember it.
            client.loop.add_callback(_forget_attempt, client, attempt)
        finally:
            future.release()  # sends a note; `cancel` would wait for a scheduler that may have ended
        if isinstance(outcome, ProviderError):
            raise outcome
        return cast(Reply, outcome)

    def _require_workers(self, client: Client, deadline: Deadline) -> None:
        """Wait up to `connect_s` seconds for the first worker. Raises `Unavailable` without workers."""
        if not self._has_workers.has_passed:
            return
        try:
            client.wait_for_workers(1, timeout=min(deadline.remaining(), self.connect_s))
        except TimeoutError:
            hint = f"start workers: dask worker {self.address} --nthreads 64"
            no_workers = "the cluster has no workers"
            raise _cluster_error(no_workers, location=self.address, hint=hint, may_be_paid=False) from None
        except OSError as error:
            raise self._unavailable_error("the scheduler does not answer") from error
        self._has_workers = Deadline(WORKERS_CACHE_S)

    def count_worker_slots(self) -> dict[str, int]:
        """Return the parallel calls of each worker by address. Raises `Unavailable` without a scheduler's answer."""
        client = self._get_client(self.connect_s)
        try:
            identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=SCHEDULER_TIMEOUT_S)
        except (TimeoutError, OSError) as error:
            raise self._unavailable_error("the scheduler does not answer") from error
        return {address: worker["nthreads"] for address, worker in identity["workers"].items()}

    def close(self) -> None:
        """Disconnect from the cluster. Running calls are withdrawn."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            _disconnect(connection)

    def _get_client(self, within_s: float) -> Client:
        """Return the client. Threads that need the connection meanwhile share one attempt."""
        with self._lock:
            old_connection = self._connection
            is_owner = old_connection is None or not _is_usable(old_connection)
            connection: Future[Client] = Future() if is_owner or old_connection is None else old_connection
            self._connection = connection
        if is_owner:
            if old_connection is not None:
                _disconnect(old_connection)
            self._connect(connection, min(within_s, self.connect_s))
        try:
            return connection.result(within_s)
        except TimeoutError:
            raise timeout_error(within_s) from None

    def _connect(self, connection: Future[Client], within_s: float) -> None:
        try:
            from distributed import Client

            # Errors appear in the results of the calls.
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            client = Client(self.address, timeout=within_s, set_as_default=False, name="lemming")
            connection.set_result(client)
        except ImportError:
            hint = install_command("dask")
            connection.set_exception(Unusable("distributed is not installed", hint=hint))
        except OSError as error:
            connection.set_exception(self._unavailable_error(f"no scheduler answers: {error}"))
        except BaseException as error:
            connection.set_exception(error)
            raise

    def _unavailable_error(self, message: str, *, may_be_paid: bool = False) -> Unavailable:
        hint = 'start it (dask scheduler), or correct "executor_address" in config/org.json'
        return _cluster_error(message, location=self.address, hint=hint, may_be_paid=may_be_paid)


class _DaskProvider(Backend):
    """A model entry whose calls run on a cluster."""

    keeps_deadline = True

    def __init__(self, calls: DaskCalls, entry: WorkerModelEntry, inner: LLMProvider) -> None:
        self.takes_schema, self.takes_tools = inner.takes_schema, inner.takes_tools
        self.is_person, self.prefers_tools = inner.is_person, inner.prefers_tools
        self.can_be_down, self.leaves_out = inner.can_be_down, inner.leaves_out
        self.acts_outside = inner.acts_outside
        self._calls, self._entry = calls, entry

    def complete(self, request: Request) -> Reply:
        """Return a worker's answer."""
        return self._calls.submit(self._entry, request)


async def _forget_attempt(client: Client, attempt: str) -> None:
    with suppress(OSError):  # a scheduler that is gone has forgotten it
        await client.scheduler.event_clear(name=attempt)


def _is_usable(connection: Future[Client]) -> bool:
    """Return True for a connection that is open or being made. A lost connection is replaced."""
    if not connection.done():
        return True
    return connection.exception() is None and connection.result().status == "running"


def _disconnect(connection: Future[Client]) -> None:
    if connection.done() and connection.exception() is None:
        with suppress(TimeoutError):  # from a lost worker, without a meaning
            connection.result().close(timeout=1)


class ClusterCapability(Capability):
    """A cluster as the organisation's `executor`."""

    name = "cluster"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permission for the cluster: answers are unpickled, and unpickling may run any code."""
    address = config.org.executor_address
    yield code_permission(f"has its calls made by the cluster at {address}, which may run code here")
