"""`lemming report`: what the page shows of an organisation, gathered into files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lemming.dashboard.on_disk import Shelf, key_of, place_for
from lemming.facts.views.agent import workspace_text
from lemming.facts.views.dispatch import view
from lemming.facts.views.tick import ROWS_SHOWN, recorded, whole_turn
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.html_tables import table, text
from lemming.kernel.base.jsontext import compact
from lemming.kernel.messages import entry_id
from lemming.kernel.org.organisation import Organisation
from lemming.timeline.tick_spans import journals_of, parse_ticks

Json = dict[str, Any]
AGENTS, TICKS, ENTRIES, TEXT_CHARS = 200, 20, 30, 400  # of the summary

TICKS, MOST_TICKS = 50, 500
MOST_ENTRIES, ENTRIES_AT_ONCE = 2000, 200
MOST_AGENTS, AGENTS_WHOLE, AGENTS_AT_ONCE, AGENTS_ON_MAPS = 2000, 100, 200, 40
MEGABYTE = 1_000_000
ROOM = {"feed": 3.0, "threads": 1.5, "ticks": 7.0, "trees": 3.0, "agents": 2.0, "texts": 1.0}
"""How many megabytes there are for each kind of data, in all at most 20 with what is there once."""
LARGEST_TREE, TREES_IN_VAIN = 300_000, 20


@dataclass(frozen=True)
class WrittenReport:
    """What was written: `ticks` are the first and the last; `left_out` says in words what is not there."""

    folder: Path
    files: list[str]
    total_bytes: int
    ticks: list[int]
    left_out: list[str]


def write_report(
    org: Organisation,
    given: Path,
    ticks: str | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenReport:
    """Write what the page shows, of some ticks (default: the newest 50), as files that open from disk.

    `progress` is told what is being written.
    Raises `UsageError` for a folder in which there is something else, and for ticks that nothing tells of.
    """
    place = place_for(org.base, given)
    known = journals_of(org, None)
    chosen = (parse_ticks(ticks, known) if ticks else known[-TICKS:])[-MOST_TICKS:]
    gathering = _Gathering(org, Shelf(place), chosen, known, progress)
    gathering.all()
    shelf = gathering.shelf
    ends = chosen[:1] + chosen[-1:]
    return WrittenReport(place, shelf.files, shelf.total_bytes, ends, gathering.left_out)


class _Gathering:
    """One report as it is made: the page first, then what it shows, then which file has what."""

    def __init__(
        self,
        org: Organisation,
        shelf: Shelf,
        ticks: list[int],
        known: list[int],
        progress: Callable[[str], None],
    ) -> None:
        self.shelf, self.left_out, self._progress = shelf, list[str](), progress
        self._org, self._ticks, self._known = org, ticks, known
        self._room = {kind: int(size * MEGABYTE) for kind, size in ROOM.items()}
        self._whys, self._in_vain = set[str](), 0
        self._entries: list[Json] = []

    def all(self) -> None:
        """Write all of it."""
        header, overview = _standing(self._org, self._ticks), self._overview()
        if found := overview.get("findings"):
            header |= {"findings": found["total"], "can_tell": found["can_tell"]}
        feeds = [*self._feed()]
        self._entries = [entry for feed in feeds for entry in feed]
        self._note_ticks()
        self.shelf.put_page(summary_of(header, overview, self._entries))
        for place, feed in enumerate(feeds):
            self.shelf.put(f"feed-{place}", {f"feed {place}": feed})
        self._progress("threads, agents, ticks")
        self._threads()
        self.shelf.put("overview", overview)
        self._each_tick()
        self._each_agent()
        words = "; ".join(self.left_out)
        page = {"is_read_only": True, "is_report": True, "person": "", "left_out": words}
        ends = {"first": self._ticks[0], "newest": self._ticks[-1]} if self._ticks else {}
        self.shelf.put_index({"page": page, "header": header, "feeds": len(feeds), **ends})

    def _put(self, kind: str, name: str, values: Json) -> bool:
        """Write a file of data if there is room for it; return whether there was."""
        size = self.shelf.put(name, values, most=self._room[kind])
        self._room[kind] -= size
        return bool(size)

    def _value(self, key: str, name: str, /, **parameters: object) -> Any:
        """Return a view's value; None where it raises an error, which the page then shows under the key."""
        texts = {each: str(value) for each, value in parameters.items()}
        return self.shelf.value_or_none(key, lambda: view(self._org, name, texts))

    def _values(self, *asked: tuple[str, Json]) -> Json:
        """Return the values of views by their keys, without those that cannot be had."""
        keys = {key_of(name, **parameters): (name, parameters) for name, parameters in asked}
        told = {key: self._value(key, name, **parameters) for key, (name, parameters) in keys.items()}
        return {key: value for key, value in told.items() if value is not None}

    # --- what is there once ---

    def _overview(self) -> Json:
        plain: Iterator[tuple[str, Json]] = ((name, {}) for name in ("waiting", "findings", "money", "map"))
        values = self._values(*plain, ("money", {"by": "day"}))
        agents = self._agents()
        strip: Json | None = {"ticks": [], "older": False, "is_running": False}
        if self._ticks:
            strip = self._value("ticks", "ticks", count=MOST_TICKS, before=self._ticks[-1] + 1)
        if strip:
            rows = [row for row in strip["ticks"] if row["tick"] in {*self._ticks}]
            strip = {**strip, "ticks": rows, "older": False, "is_running": False}
        listed = {"agents": agents, "ticks": strip}
        return {**values, **{key: value for key, value in listed.items() if value is not None}}

    def _agents(self) -> Json | None:
        found: Json | None = self._value("agents", "agents", limit=AGENTS_AT_ONCE)
        while found and len(found["rows"]) < min(found["total"], MOST_AGENTS):
            more = self._value("agents", "agents", limit=AGENTS_AT_ONCE, offset=len(found["rows"]))
            if not more or not more["rows"]:
                break
            found["rows"] += more["rows"]
        if found is None:
            return None
        if (missing := found["total"] - len(found["rows"])) > 0:
            self.left_out.append(f"{missing} more agents")
        for row in found["rows"]:
            row["next_at"] = None  # it is told from now, and a report does not know when it is read
        return {**found, "total": len(found["rows"])}

    def _feed(self) -> Iterator[list[Json]]:
        """Yield the entries of the ticks, newest first, some at once."""
        is_newest = self._ticks[-1:] == self._known[-1:]
        first = self._ticks[0] if self._ticks[:1] != self._known[:1] else 0
        parameters: Json = {"limit": ENTRIES_AT_ONCE}
        if not is_newest:
            after = self._ticks[-1] + 1
            parameters["before"] = f"a/{after:08d}_{entry_id(after, 'a', 0)}"
        count = 0
        while told := self._value("feed", "feed", **parameters):
            entries = told["entries"]
            inside = [it for it in entries if first <= it["tick"] and (is_newest or it["tick"] < after)]
            yield inside
            count += len(inside)
            self._room["feed"] -= sum(len(compact(it)) for it in inside)
            parameters["before"] = told["before"]
            if told["before"] is None or len(inside) < len(entries):
                return
            if count >= MOST_ENTRIES or self._room["feed"] < 0:
                self.left_out.append(f"entries before tick {entries[-1]['tick']}")
                return

    def _threads(self) -> None:
        """Write the requests that entries belong to, each with all that was said for it, once."""
        told: dict[str, int] = {}
        threads: list[Json] = []
        for entry in self._entries:
            if entry["request"] and entry["identity"] not in told:
                thread = self._value(key_of("thread", of=entry["identity"]), "feed", thread=entry["identity"])
                size = len(compact(thread)) if thread is not None else 0
                if thread is not None and size <= self._room["threads"]:
                    self._room["threads"] -= size
                    told |= {one["identity"]: len(threads) for one in thread["entries"]}
                    threads.append(thread)
        self.shelf.put("threads", {"threads": {"threads": threads, "of": told}})

    def _note_ticks(self) -> None:
        if self._ticks and self._ticks[0] != self._known[0]:
            self.left_out.insert(0, f"ticks before {self._ticks[0]}")
        if self._ticks and self._ticks[-1] != self._known[-1]:
            self.left_out.insert(0, f"ticks after {self._ticks[-1]}")

    # --- ticks ---

    def _each_tick(self) -> None:
        """Write the ticks, newest first: once there is no room for all, a line a turn, then nothing."""
        is_whole, entries = True, self._entries_by_tick()
        self._room["ticks"] += sum(max(0, self._room[kind]) for kind in ("feed", "threads"))  # left over
        for number in reversed(self._ticks):
            self._progress(f"tick {number}")
            values, files = self._tick(number, is_whole=is_whole)
            if not self._put("ticks", f"tick-{number}", values):
                if is_whole:
                    is_whole = False
                    self.left_out.append(f"prompts, answers and changes of tick {number} and those before")
                    values, files = self._tick(number, is_whole=False)
                if not self._put("ticks", f"tick-{number}", values):
                    self.left_out.append(f"all of tick {number} and those before but the strip")
                    break
            self._trees([*entries.get(number, ()), *files], f"of tick {number} and before")
        for number in sorted(entries.keys() - {*self._ticks}):  # in which only people said something
            self._trees(entries[number], f"of tick {number}")

    def _entries_by_tick(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for entry in self._entries:
            found.setdefault(entry["tick"], []).append(entry["file"])
        return found

    def _tick(self, number: int, *, is_whole: bool) -> tuple[Json, list[str]]:
        """Return a tick's values, and which files its turns wrote that are no entries."""
        changes = [("past", {"new": number})] if is_whole else []
        values = self._values(("tick", {"number": number}), *changes)
        told, files = values.get(key_of("tick", number=number)), list[str]()
        if told is None:
            return values, files
        pages = range(ROWS_SHOWN, len(told["order"]), ROWS_SHOWN)
        values |= self._values(*(("tick", {"number": number, "first": first}) for first in pages))
        record = recorded(self._org, number)
        for turn in record.turns:
            if is_whole:
                values[key_of("turn", number=number, agent=turn.agent)] = whole_turn(turn, record)
            files += [path for path in turn.writes if path.split("/")[2:3] != ["outbox"]]
        return values, files

    def _trees(self, targets: Iterable[str], which: str) -> None:
        """Write where things came from, each by itself: the trees behind what is not told of yet."""
        for target in targets:
            if self._in_vain < TREES_IN_VAIN and target not in self._whys:
                self._whys.add(target)
                self._in_vain = 0 if self._tree(target) else self._in_vain + 1
                if self._in_vain == TREES_IN_VAIN:
                    self.left_out.append(f"where most entries came from, {which}")

    def _tree(self, target: str) -> bool:
        """Write one tree; of one that is too large the first turn. Returns whether there was room for it."""
        for depth in (None, 1):
            further = {} if depth is None else {"depth": depth}
            tree = self._value(key_of("why", target=target), "why", target=target, **further)
            if tree is None:
                return True
            values = {key_of("why", target=each): tree for each in _names_of(tree)}
            most = min(LARGEST_TREE, self._room["trees"])
            size = self.shelf.put(f"why-{len(self._whys)}", values, most=most)
            if size:
                self._room["trees"] -= size
                return True
        return False

    # --- agents ---

    def _each_agent(self) -> None:
        names = [name for name in agent_folders(self._org) if paths.AGENT_NAME.match(name)]
        if len(names) > AGENTS_WHOLE:
            names = sorted(names, key=self._quietness)[:AGENTS_WHOLE]
            self.left_out.append(
                f"resumes, memories and files of all but the {AGENTS_WHOLE} agents who wrote most"
            )
        has_maps = len(names) <= AGENTS_ON_MAPS
        if not has_maps:
            self.left_out.append("maps of one agent and its neighbours")
        for name in sorted(names):
            maps = [("map", {"agent": name})] if has_maps else []
            values = self._values(("agent", {"name": name, "prompt": 1}), *maps)
            if not self._put("agents", f"agent-{name}", values):
                self.left_out.append(f"resumes, memories and files of {name} and those after it")
                break
            if one := values.get(key_of("agent", name=name, prompt=1)):
                memories = [f"{name}/memory/{it['key']}" for it in one["memory"]["values"]]
                self._trees([*memories, *_files_of(one)], f"of {name}")
                if not self._put("texts", f"files-of-{name}", self._texts(one)):
                    self.left_out.append(f"the texts of files of {name}")

    def _quietness(self, name: str) -> tuple[int, str]:
        """Return how little an agent has written; sorts by that."""
        return -sum(entry["agent"] == name for entry in self._entries), name

    def _texts(self, one: Json) -> Json:
        """Return the texts of the files of an agent's workspace, by their keys."""
        values: Json = {}
        name = one["name"]
        for path in (it["path"] for it in one["workspace"]["files"] if not it["is_link"]):
            key = key_of("file", name=name, file=path)
            text = self.shelf.value_or_none(key, partial(workspace_text, self._org, name, path))
            if text is not None:
                values[key] = {"path": path, "text": text}
        return values


def _standing(org: Organisation, ticks: list[int]) -> Json:
    """Return the head of the page, without what is only so while somebody looks."""
    header = view(org, "header")
    name = org.base.resolve().name
    calm: Json = {"org": name, "engine": None, "next_at": None}
    if header["state"] not in ("broken", "interrupted", "paused"):
        span = f"ticks {ticks[0]} to {ticks[-1]}" if ticks else "no tick has run yet"
        calm |= {"state": "report", "why": f"{span}; it shows, and changes nothing"}
    return {**header, **calm}


def _files_of(one: Json) -> Iterator[str]:
    """Yield the paths of an agent's files, links left out."""
    for file in one["workspace"]["files"]:
        if not file["is_link"]:
            yield f"{paths.workspace_folder(one['name'])}/{file['path']}"


def _names_of(tree: Json) -> list[str]:
    """Return by which names the page asks for a tree: its path, and the short one."""
    return sorted({tree["target"]["path"], tree["target"]["name"]} - {""})


def summary_of(header: Json, overview: Json, entries: Sequence[Json]) -> str:
    """Return the summary as HTML, in which every text stands escaped."""
    agents = overview.get("agents", {}).get("rows", [])[:AGENTS]
    ticks = overview.get("ticks", {}).get("ticks", [])[-TICKS:][::-1]
    parts = [
        f"<h1>{text(header['org'])}</h1>",
        f"<p>{text(header['why'])}. Next is tick {text(header['tick'])}; {text(header.get('waiting', 0))} "
        "waiting for people. This is a summary: with JavaScript the page shows all of it.</p>",
        _table("Agents", ("Agent", "Now", "Last words"), map(_agent, agents)),
        _table("Newest ticks", ("Tick", "When", "Turns", "Entries", "Worst end"), map(_tick, ticks)),
        _table("Newest entries", ("Tick", "Agent", "Kind", "Text"), map(_entry, entries[:ENTRIES])),
    ]
    return f'<main class="summary">{"".join(parts)}</main>'


def _agent(row: Json) -> tuple[Any, ...]:
    last = row.get("last") or {}
    return row["name"], row["text"] or row["state"].replace("_", " "), last.get("text", "")


def _tick(row: Json) -> tuple[Any, ...]:
    worst = row["problem"] or row["worst"] or row["status"]
    return row["tick"], row["at"], f"{row['turns']} of {row['planned']}", row["entries"], worst


def _entry(entry: Json) -> tuple[Any, ...]:
    return entry["tick"], entry["agent"], entry["kind"], entry["text"][:TEXT_CHARS]


def _table(title: str, heads: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> str:
    told = table(heads, rows)
    return f"<h2>{title}</h2>{told}" if told else ""
