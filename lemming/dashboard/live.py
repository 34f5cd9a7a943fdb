"""What the page shows, live: one look a second while somebody watches, and none otherwise.

Whoever watches is sent the state, never a backlog: at once, and whenever the organisation has come further.
The event's id is the organisation's position. Four threads look, each with an `Organisation` of its own:
views that need all entries, or old journals, wait for those, and the others do not; what is tried on the
past has one for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lemming.capabilities.requests.waiting import waiting
from lemming.facts.accounts import Account, removed_accounts
from lemming.facts.views.dispatch import view
from lemming.facts.views.header import broken, standing
from lemming.facts.views.position import position_of
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.org.organisation import Organisation

T = TypeVar("T")
Json = dict[str, Any]

LOOK_S = 1.0
FINDINGS_AFTER_S = 20.0
"""What goes wrong is counted at most so often: all turns of many ticks are looked at."""
NEEDS_ALL_ENTRIES = frozenset({"waiting", "feed"})
NEEDS_OLD_JOURNALS = frozenset({"past", "why", "findings", "money"})


class Lane:
    """One thread, and what is known of the organisation by it."""

    def __init__(self, base: Path, name: str) -> None:
        self.org = Organisation(base)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"lemming-{name}")

    async def do(self, work: Callable[[Organisation], T]) -> T:
        """Do something with the organisation, after what was asked for before it.

        Raises `LemmingError` for whatever goes wrong: the page shows it, and goes on.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.org)
        except LemmingError:
            raise
        except Exception as error:
            hint = "`lemming doctor` looks at the machine, `lemming verify` at the files"
            raise LemmingError(f"{type(error).__name__}: {error}", where=str(self.org), hint=hint) from error

    def close(self) -> None:
        """End the thread, after what it does now."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Live:
    """The state of one organisation for all who watch it; `page`: what else the page is to know."""

    def __init__(self, base: Path, page: Json, *, look_s: float = LOOK_S) -> None:
        self.page, self._look_s = page, look_s
        self._person: str = page.get("person", "")
        self._quick, self._whole, self._old = Lane(base, "look"), Lane(base, "read"), Lane(base, "old")
        self._aside = Lane(base, "try")
        self._position = self._counted = ""
        self._waiting: int | None = None  # not known yet
        self._findings: int | None = None
        self._can_tell = True
        self._removed = list[Account]()
        self._looked_for_findings = -FINDINGS_AFTER_S
        self._version = 0
        self._watchers = 0
        self._looks: asyncio.Task[None] | None = None
        self._count: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._is_over = False
        self._kept: dict[tuple[Any, ...], asyncio.Task[Any]] = {}

    async def view(self, name: str, parameters: Mapping[str, str]) -> Json:
        """Return what a view shows now; what waits is that of the person who looks, if one is named."""
        if name == "waiting" and self._person:
            parameters = {"person": self._person, **parameters}
        lane = self._lane_of(name)
        if (
            name == "feed" and self._waiting is None
        ):  # all entries are being read: the newest are there at once
            lane, parameters = self._quick, {"threads": "0", **parameters}
        return await lane.do(lambda org: view(org, name, parameters))

    def _lane_of(self, name: str) -> Lane:
        if name in NEEDS_ALL_ENTRIES:
            return self._whole
        return self._old if name in NEEDS_OLD_JOURNALS else self._quick

    async def change(self, work: Callable[[Organisation], T]) -> T:
        """Change something, and have everybody see it at once."""
        result = await self._whole.do(work)
        await self._look()
        return result

    async def aside(self, work: Callable[[Organisation], T]) -> T:
        """Do something that may take long and changes nothing, while all others go on looking."""
        return await self._aside.do(work)

    async def stream(self, name: str, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the state with one view as server-sent events, as long as somebody listens."""
        sent, seen = b"", -1
        self._watchers += 1
        try:
            await self._look()
            self._looks = self._looks or asyncio.create_task(self._keep_looking())
            while not self._is_over:
                seen, position = self._version, self._position
                state = await self._state(name, parameters)
                if state != sent:
                    yield b"retry: 1000\nid: %b\ndata: %b\n\n" % (position.encode(), state)
                    sent = state
                self._begin_to_count()
                await self._news_after(seen)
        finally:
            self._watchers -= 1
            if not self._watchers and self._looks:
                self._looks.cancel()
                self._looks = None

    async def _news_after(self, seen: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._version != seen or self._is_over)

    async def close(self) -> None:
        """Let everybody who listens go."""
        self._is_over = True
        async with self._changed:
            self._changed.notify_all()
        for lane in (self._quick, self._whole, self._old, self._aside):
            lane.close()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await self._look()

    async def _look(self) -> None:
        position = self._position
        with contextlib.suppress(LemmingError):  # the head says what is wrong
            position = await self._quick.do(position_of)
        if position != self._position:
            self._position = position
            await self._publish()

    def _begin_to_count(self) -> None:
        """Count what waits for people once the state is out: it may take a while, and has threads compete."""
        if self._counted != self._position and (self._count is None or self._count.done()):
            self._count = asyncio.create_task(self._count_waiting())

    async def _count_waiting(self) -> None:
        """Count what waits for people, which may need all entries; until then the last count holds."""
        before = self._waiting
        while self._counted != self._position:
            self._counted = self._position
            with contextlib.suppress(LemmingError):
                waits = await self._whole.do(waiting)
                self._waiting = sum(self._person in ("", it.person) for it in waits)
        if self._waiting != before:
            await self._publish()
        await self._count_removed()
        await self._count_findings()

    async def _count_removed(self) -> None:
        """Add up what removed agents spent, which all journals tell; until then the last sum holds."""
        before = self._removed
        with contextlib.suppress(LemmingError):
            self._removed = await self._old.do(removed_accounts)
        if self._removed != before:
            await self._publish()

    async def _count_findings(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_for_findings < FINDINGS_AFTER_S:
            return
        self._looked_for_findings = now
        before = self._findings
        with contextlib.suppress(LemmingError):
            found = await self._old.do(lambda org: view(org, "findings"))
            self._findings, self._can_tell = found["total"], found["can_tell"]
        if self._findings != before:
            await self._publish()

    async def _publish(self) -> None:
        self._version += 1
        self._kept.clear()
        async with self._changed:
            self._changed.notify_all()

    async def _state(self, name: str, parameters: Mapping[str, str]) -> bytes:
        header, shown = await asyncio.gather(
            self._once(("header",), self._standing),
            self._once((name, *sorted(parameters.items())), lambda: self._shown(name, parameters)),
        )
        return compact({"page": self.page, "header": {**header, **self._counts}, **shown})

    @property
    def _counts(self) -> Json:
        return {"waiting": self._waiting, "findings": self._findings, "can_tell": self._can_tell}

    async def _standing(self) -> Json:
        try:
            return await self._quick.do(partial(standing, removed=self._removed))
        except LemmingError as error:
            return broken(self._quick.org, error)

    async def _shown(self, name: str, parameters: Mapping[str, str]) -> Json:
        if name == "header":
            return {}
        try:
            return {"view": await self.view(name, parameters)}
        except LemmingError as error:
            return {"error": error.as_json()}

    async def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what was made for somebody else of the same state, if it was."""
        if key not in self._kept:
            self._kept[key] = asyncio.ensure_future(make())
        # whoever goes away ends nothing that others wait for
        return await asyncio.shield(self._kept[key])
