"""Live state of the page: a poll every second while a browser is connected, and no polling otherwise.

A connected browser receives the state, never a backlog: at once, and whenever the organisation advances. The
event's id is the organisation's position. Four threads read, each with an own `Organisation`: views that need
all entries or old journals do not delay other views, and rehearsals have a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.waiting_items import list_person_inbox
from lemming.queries.credit_accounts import Account, load_removed_accounts
from lemming.queries.views.change_token import compute_change_token
from lemming.queries.views.header_view import build_broken_status, build_status
from lemming.queries.views.view_registry import build_view

T = TypeVar("T")
Json = dict[str, Any]

POLL_S = 1.0
FINDINGS_INTERVAL_S = 20.0
"""Minimum seconds between two scans for findings, which read all turns of many ticks."""
NEEDS_ALL_ENTRIES = frozenset({"waiting", "feed"})
NEEDS_OLD_JOURNALS = frozenset({"past", "why", "findings", "money", "screen"})


class OrgWorker:
    """A worker thread with a private `Organisation` and caches."""

    def __init__(self, base: Path, name: str) -> None:
        self.org = Organisation(base)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"lemming-{name}")

    async def run(self, work: Callable[[Organisation], T]) -> T:
        """Run a function on the organisation after earlier work. Raises: LemmingError for every failure."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.org)
        except LemmingError:
            raise
        except Exception as error:
            hint = "check the machine with `lemming doctor`, the files with `lemming verify`"
            raise LemmingError(f"{type(error).__name__}: {error}", where=str(self.org), hint=hint) from error

    def close(self) -> None:
        """Stop the thread after the current job."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class LiveState:
    """Shared state of an organisation for all connected browsers. `page` holds further values for the page."""

    def __init__(self, base: Path, page: Json, *, poll_s: float = POLL_S) -> None:
        self.page, self._poll_s = page, poll_s
        self._person: str = page.get("person", "")
        workers = (OrgWorker(base, name) for name in ("look", "read", "old"))
        self._quick_worker, self._entries_worker, self._journals_worker = workers
        self._background_worker = OrgWorker(base, "try")
        self._position = self._counted_position = ""
        self._waiting: int | None = None  # None until counted
        self._findings: int | None = None
        self._can_judge = True
        self._removed = list[Account]()
        self._findings_checked_at = -FINDINGS_INTERVAL_S
        self._version = 0
        self._watchers = 0
        self._poll_task: asyncio.Task[None] | None = None
        self._count_task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._pending_views: dict[tuple[Any, ...], asyncio.Task[Any]] = {}

    async def load_view(self, name: str, parameters: Mapping[str, str]) -> Json:
        """Return the current content of a view; the waiting items are limited to the page's person, if any."""
        if name == "waiting" and self._person:
            parameters = {"person": self._person, **parameters}
        worker = self._journals_worker if name in NEEDS_OLD_JOURNALS else self._quick_worker
        if name == "feed" and self._waiting is None:  # the newest entries are there before all entries are read
            parameters = {"threads": "0", **parameters}
        elif name in NEEDS_ALL_ENTRIES:
            worker = self._entries_worker
        return await worker.run(lambda org: build_view(org, name, parameters))

    async def apply_change(self, work: Callable[[Organisation], T]) -> T:
        """Apply a change and show the result to all browsers at once."""
        result = await self._entries_worker.run(work)
        await self._poll()
        return result

    async def run_in_background(self, work: Callable[[Organisation], T]) -> T:
        """Run slow read-only work on the background thread."""
        return await self._background_worker.run(work)

    async def stream(self, name: str, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the state with a view as server-sent events until the browser disconnects."""
        sent, version = b"", -1
        self._watchers += 1
        try:
            await self._poll()
            self._poll_task = self._poll_task or asyncio.create_task(self._keep_polling())
            while not self._is_closed:
                version, position = self._version, self._position
                state = await self._build_event(name, parameters)
                if state != sent:
                    yield b"retry: 1000\nid: %b\ndata: %b\n\n" % (position.encode(), state)
                    sent = state
                # Counting is slow, and starts after the state was sent.
                if self._counted_position != self._position and (self._count_task is None or self._count_task.done()):
                    self._count_task = asyncio.create_task(self._count_all())
                async with self._changed:
                    await self._changed.wait_for(lambda: self._version != version or self._is_closed)  # noqa: B023
        finally:
            self._watchers -= 1
            if not self._watchers and self._poll_task:
                self._poll_task.cancel()
                self._poll_task = None

    async def close(self) -> None:
        """Disconnect all browsers and stop the threads."""
        self._is_closed = True
        async with self._changed:
            self._changed.notify_all()
        for worker in (self._quick_worker, self._entries_worker, self._journals_worker, self._background_worker):
            worker.close()

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            await self._poll()

    async def _poll(self) -> None:
        position = self._position
        with contextlib.suppress(LemmingError):  # the header shows the error
            position = await self._quick_worker.run(compute_change_token)
        if position != self._position:
            self._position = position
            await self._publish()

    async def _count_all(self) -> None:
        """Count the items waiting for people, the costs of removed agents and the findings.

        They may need all entries and journals. The previous values are shown meanwhile.
        """
        previous_count = self._waiting
        while self._counted_position != self._position:
            self._counted_position = self._position
            with contextlib.suppress(LemmingError):
                items = await self._entries_worker.run(list_person_inbox)
                self._waiting = sum(self._person in ("", item.person) for item in items)
        if self._waiting != previous_count:
            await self._publish()
        previous_accounts = self._removed
        with contextlib.suppress(LemmingError):
            self._removed = await self._journals_worker.run(load_removed_accounts)
        if self._removed != previous_accounts:
            await self._publish()
        current_time = asyncio.get_running_loop().time()
        if current_time - self._findings_checked_at < FINDINGS_INTERVAL_S:
            return
        self._findings_checked_at = current_time
        previous_count = self._findings
        with contextlib.suppress(LemmingError):
            findings_view = await self._journals_worker.run(lambda org: build_view(org, "findings"))
            self._findings, self._can_judge = findings_view["total"], findings_view["can_tell"]
        if self._findings != previous_count:
            await self._publish()

    async def _publish(self) -> None:
        self._version += 1
        self._pending_views.clear()
        async with self._changed:
            self._changed.notify_all()

    async def _build_event(self, name: str, parameters: Mapping[str, str]) -> bytes:
        header, content = await asyncio.gather(
            self._get_or_make(("header",), self._load_status),
            self._get_or_make((name, *sorted(parameters.items())), lambda: self._load_view_or_error(name, parameters)),
        )
        counts = {"waiting": self._waiting, "findings": self._findings, "can_tell": self._can_judge}
        return dump_compact({"page": self.page, "header": {**header, **counts}, **content})

    async def _load_status(self) -> Json:
        try:
            return await self._quick_worker.run(partial(build_status, removed=self._removed))
        except LemmingError as error:
            return build_broken_status(self._quick_worker.org, error)

    async def _load_view_or_error(self, name: str, parameters: Mapping[str, str]) -> Json:
        if name == "header":
            return {}
        try:
            return {"view": await self.load_view(name, parameters)}
        except LemmingError as error:
            return {"error": error.as_json()}

    async def _get_or_make(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return the result for `key`, shared by all browsers with the same request."""
        if key not in self._pending_views:
            self._pending_views[key] = asyncio.ensure_future(make())
        # a disconnecting browser must not cancel a shared task
        return await asyncio.shield(self._pending_views[key])
