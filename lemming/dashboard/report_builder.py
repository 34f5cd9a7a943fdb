"""`lemming export report`: write the content of the page for an organisation to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from lemming.dashboard.report_folder import ReportFolder, make_view_key, resolve_report_folder
from lemming.journal_tools.tick_ranges import list_journals, select_ticks
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.messages import entry_id
from lemming.kernel.org.organisation import Organisation
from lemming.queries.screens.screen_registry import iter_screens
from lemming.queries.views.agent_view import load_workspace_text
from lemming.queries.views.tick_view import MAX_ROWS, load_recorded_tick, turn_to_full_json
from lemming.queries.views.view_registry import build_view

Json = dict[str, Any]
AGENTS, ENTRIES, TEXT_CHARS = 200, 30, 400  # limits of the summary
TICKS, MAX_TICKS = 50, 500
MAX_ENTRIES, ENTRIES_PER_PAGE = 2000, 200
MAX_AGENTS, MAX_FULL_AGENTS, AGENTS_PER_PAGE, MAX_AGENTS_WITH_MAPS = 2000, 100, 200, 40
MEGABYTE = 1_000_000
SIZE_LIMITS_MB = {"feed": 3.0, "threads": 1.5, "ticks": 7.0, "trees": 3.0, "agents": 2.0, "texts": 1.0}
"""Maximum megabytes for each kind of data; at most 20 in total, including data stored once."""
MAX_TREE_BYTES, MAX_FAILED_TREES = 300_000, 20


@dataclass(frozen=True)
class ReportResult:
    """The files of a report. `ticks` holds the first and the last tick; `left_out` describes the omitted parts."""

    folder: Path
    files: list[str]
    total_bytes: int
    ticks: list[int]
    left_out: list[str]


def write_report(
    org: Organisation, path: Path, ticks: str | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> ReportResult:
    """Write the content of the page for some ticks (default: the newest 50) as files to open from disk.

    `progress` is called with the part being written. Raises: UsageError for a folder with other content, and for ticks
    without a journal.
    """
    folder, recorded_ticks = ReportFolder(resolve_report_folder(org.base, path)), list_journals(org, None)
    selected_ticks = (select_ticks(ticks, recorded_ticks) if ticks else recorded_ticks[-TICKS:])[-MAX_TICKS:]
    builder = _ReportBuilder(org, folder, selected_ticks, recorded_ticks, progress)
    builder.build()
    ends = selected_ticks[:1] + selected_ticks[-1:]
    return ReportResult(folder.folder, folder.files, folder.total_bytes, ends, builder.left_out)


class _ReportBuilder:
    """Builder of a report: first the page, then the data, at last the index."""

    def __init__(
        self,
        org: Organisation,
        folder: ReportFolder,
        ticks: list[int],
        recorded_ticks: list[int],
        progress: Callable[[str], None],
    ) -> None:
        self.folder, self.left_out, self._progress = folder, list[str](), progress
        self._org, self._ticks, self._recorded_ticks = org, ticks, recorded_ticks
        self._remaining_bytes = {kind: int(size * MEGABYTE) for kind, size in SIZE_LIMITS_MB.items()}
        self._traced_targets, self._failed_trees = set[str](), 0
        self._entries: list[Json] = []

    def build(self) -> None:
        """Write the whole report."""
        header, overview = _build_static_header(self._org, self._ticks), self._build_overview()
        if findings := overview.get("findings"):
            header |= {"findings": findings["total"], "can_tell": findings["can_tell"]}
        feeds = [*self._iter_feed_pages()]
        self._entries = [entry for feed in feeds for entry in feed]
        if self._ticks and self._ticks[0] != self._recorded_ticks[0]:
            self.left_out.insert(0, f"ticks before {self._ticks[0]}")
        if self._ticks and self._ticks[-1] != self._recorded_ticks[-1]:
            self.left_out.insert(0, f"ticks after {self._ticks[-1]}")
        self.folder.write_page(render_summary(header, overview, self._entries))
        for index, feed in enumerate(feeds):
            self.folder.write_data(f"feed-{index}", {f"feed {index}": feed})
        self._progress("threads, agents, ticks")
        self._write_threads()
        self.folder.write_data("overview", overview)
        lists = (screen.name for screen in iter_screens() if screen.query and not screen.is_local)
        tables = {}
        for name in lists:
            with suppress(LemmingError):  # of a list foreign to the organisation
                tables[make_view_key("screen", screen=name)] = build_view(self._org, "screen", {"screen": name})
        self.folder.write_data("lists", tables)
        self._write_ticks()
        self._write_agents()
        omissions = "; ".join(self.left_out)
        page = {"is_read_only": True, "is_report": True, "person": "", "left_out": omissions}
        ends = {"first": self._ticks[0], "newest": self._ticks[-1]} if self._ticks else {}
        self.folder.write_index({"page": page, "header": header, "feeds": len(feeds), **ends})

    def _write_data(self, kind: str, name: str, values: Json) -> bool:
        """Write a data file if the size limit of the kind allows, and return True if the file was written."""
        size = self.folder.write_data(name, values, max_bytes=self._remaining_bytes[kind])
        self._remaining_bytes[kind] -= size
        return bool(size)

    def _load_view(self, key: str, name: str, /, **parameters: object) -> Any:
        """Return the value of a view, or None on an error, which the page shows under `key`."""
        texts = {parameter: str(value) for parameter, value in parameters.items()}
        return self.folder.make_or_record_error(key, lambda: build_view(self._org, name, texts))

    def _load_views(self, *requests: tuple[str, Json]) -> Json:
        """Return the values of views by key, without failed views."""
        keys = {make_view_key(name, **parameters): (name, parameters) for name, parameters in requests}
        loaded = {key: self._load_view(key, name, **parameters) for key, (name, parameters) in keys.items()}
        return {key: value for key, value in loaded.items() if value is not None}

    # --- single parts ---

    def _build_overview(self) -> Json:
        simple_views: Iterator[tuple[str, Json]] = ((name, {}) for name in ("waiting", "findings", "money", "map"))
        values = self._load_views(*simple_views, ("money", {"by": "day"}))
        agents = self._build_agents()
        strip: Json | None = {"ticks": [], "older": False, "is_running": False}
        if self._ticks:
            strip = self._load_view("ticks", "ticks", count=MAX_TICKS, before=self._ticks[-1] + 1)
        if strip:
            rows = [row for row in strip["ticks"] if row["tick"] in {*self._ticks}]
            strip = {**strip, "ticks": rows, "older": False, "is_running": False}
        lists = {"agents": agents, "ticks": strip}
        return {**values, **{key: value for key, value in lists.items() if value is not None}}

    def _build_agents(self) -> Json | None:
        listing: Json | None = self._load_view("agents", "agents", limit=AGENTS_PER_PAGE)
        while listing and len(listing["rows"]) < min(listing["total"], MAX_AGENTS):
            next_page = self._load_view("agents", "agents", limit=AGENTS_PER_PAGE, offset=len(listing["rows"]))
            if not next_page or not next_page["rows"]:
                break
            listing["rows"] += next_page["rows"]
        if listing is None:
            return None
        if (missing := listing["total"] - len(listing["rows"])) > 0:
            self.left_out.append(f"{missing} more agents")
        for row in listing["rows"]:
            row["next_at"] = None  # relative to the time of reading, which a report does not know
        return {**listing, "total": len(listing["rows"])}

    def _iter_feed_pages(self) -> Iterator[list[Json]]:
        """Yield the entries of the ticks in pages, newest first."""
        is_newest = self._ticks[-1:] == self._recorded_ticks[-1:]
        first = self._ticks[0] if self._ticks[:1] != self._recorded_ticks[:1] else 0
        parameters: Json = {"limit": ENTRIES_PER_PAGE}
        if not is_newest:
            end_tick = self._ticks[-1] + 1
            parameters["before"] = f"a/{end_tick:08d}_{entry_id(end_tick, 'a', 0)}"
        count = 0
        while page := self._load_view("feed", "feed", **parameters):
            entries = page["entries"]
            selected = [row for row in entries if first <= row["tick"] and (is_newest or row["tick"] < end_tick)]
            yield selected
            count += len(selected)
            self._remaining_bytes["feed"] -= sum(len(dump_compact(entry)) for entry in selected)
            parameters["before"] = page["before"]
            if page["before"] is None or len(selected) < len(entries):
                return
            if count >= MAX_ENTRIES or self._remaining_bytes["feed"] < 0:
                self.left_out.append(f"entries before tick {entries[-1]['tick']}")
                return

    def _write_threads(self) -> None:
        """Write the requests of the entries, each thread once with all entries."""
        thread_indexes: dict[str, int] = {}
        threads: list[Json] = []
        for entry in self._entries:
            if entry["request"] and entry["identity"] not in thread_indexes:
                of = entry["identity"]
                thread = self._load_view(make_view_key("thread", of=of), "feed", thread=of)
                size = len(dump_compact(thread)) if thread is not None else 0
                if thread is not None and size <= self._remaining_bytes["threads"]:
                    self._remaining_bytes["threads"] -= size
                    thread_indexes |= {thread_entry["identity"]: len(threads) for thread_entry in thread["entries"]}
                    threads.append(thread)
        self.folder.write_data("threads", {"threads": {"threads": threads, "of": thread_indexes}})

    # --- ticks ---

    def _write_ticks(self) -> None:
        """Write the ticks, newest first: in full while the size limit allows, then a line per turn, then nothing."""
        is_whole, entries = True, dict[int, list[str]]()
        for entry in self._entries:
            entries.setdefault(entry["tick"], []).append(entry["file"])
        for kind in ("feed", "threads"):  # their unused room
            self._remaining_bytes["ticks"] += max(0, self._remaining_bytes[kind])
        for number in reversed(self._ticks):
            self._progress(f"tick {number}")
            values, files = self._build_tick(number, is_whole=is_whole)
            if not self._write_data("ticks", f"tick-{number}", values):
                if is_whole:
                    is_whole = False
                    self.left_out.append(f"prompts, answers and changes of tick {number} and those before")
                    values, files = self._build_tick(number, is_whole=False)
                if not self._write_data("ticks", f"tick-{number}", values):
                    self.left_out.append(f"all of tick {number} and those before but the strip")
                    break
            self._write_trees([*entries.get(number, ()), *files], f"of tick {number} and before")
        for number in sorted(entries.keys() - {*self._ticks}):  # ticks with entries of people only
            self._write_trees(entries[number], f"of tick {number}")

    def _build_tick(self, number: int, *, is_whole: bool) -> tuple[Json, list[str]]:
        """Return the values of a tick, and the files written by the turns, without entries."""
        changes = [("past", {"new": number})] if is_whole else []
        values = self._load_views(("tick", {"number": number}), *changes)
        tick_view, files = values.get(make_view_key("tick", number=number)), list[str]()
        if tick_view is None:
            return values, files
        pages = range(MAX_ROWS, len(tick_view["order"]), MAX_ROWS)
        values |= self._load_views(*(("tick", {"number": number, "first": first}) for first in pages))
        record = load_recorded_tick(self._org, number)
        for turn in record.turns:
            if is_whole:
                values[make_view_key("turn", number=number, agent=turn.agent)] = turn_to_full_json(turn, record)
            files += [path for path in turn.writes if path.split("/")[2:3] != ["outbox"]]
        return values, files

    def _write_trees(self, targets: Iterable[str], which: str) -> None:
        """Write the provenance tree of each target without a tree."""
        for target in targets:
            if self._failed_trees < MAX_FAILED_TREES and target not in self._traced_targets:
                self._traced_targets.add(target)
                self._failed_trees = 0 if self._write_tree(target) else self._failed_trees + 1
                if self._failed_trees == MAX_FAILED_TREES:
                    self.left_out.append(f"where most entries came from, {which}")

    def _write_tree(self, target: str) -> bool:
        """Write a provenance tree, or its first turn if the tree is too large. Return False if there was no room."""
        for options in ({}, {"depth": 1}):
            tree = self._load_view(make_view_key("why", target=target), "why", target=target, **options)
            if tree is None:
                return True
            names = sorted({tree["target"]["path"], tree["target"]["name"]} - {""})  # by which the page requests it
            values = {make_view_key("why", target=name): tree for name in names}
            max_bytes = min(MAX_TREE_BYTES, self._remaining_bytes["trees"])
            size = self.folder.write_data(f"why-{len(self._traced_targets)}", values, max_bytes=max_bytes)
            if size:
                self._remaining_bytes["trees"] -= size
                return True
        return False

    # --- agents ---

    def _write_agents(self) -> None:
        names = [name for name in list_agent_folders(self._org) if paths.AGENT_NAME.match(name)]
        if len(names) > MAX_FULL_AGENTS:
            counts = Counter(entry["agent"] for entry in self._entries)
            names = sorted(names, key=lambda name: (-counts[name], name))[:MAX_FULL_AGENTS]
            self.left_out.append(f"resumes, memories and files of all but the {MAX_FULL_AGENTS} agents who wrote most")
        has_maps = len(names) <= MAX_AGENTS_WITH_MAPS
        if not has_maps:
            self.left_out.append("maps of one agent and its neighbours")
        for name in sorted(names):
            maps = [("map", {"agent": name})] if has_maps else []
            values = self._load_views(("agent", {"name": name, "prompt": 1}), *maps)
            if not self._write_data("agents", f"agent-{name}", values):
                self.left_out.append(f"resumes, memories and files of {name} and those after it")
                break
            if agent := values.get(make_view_key("agent", name=name, prompt=1)):
                memories = [f"{name}/memory/{memory['key']}" for memory in agent["memory"]["values"]]
                self._write_trees([*memories, *_iter_workspace_files(agent)], f"of {name}")
                if not self._write_data("texts", f"files-of-{name}", self._load_file_texts(agent)):
                    self.left_out.append(f"the texts of files of {name}")

    def _load_file_texts(self, agent: Json) -> Json:
        """Return the texts of an agent's workspace files by key."""
        values, name = dict[str, Any](), agent["name"]
        for path in (file["path"] for file in agent["workspace"]["files"] if not file["is_link"]):
            key = make_view_key("file", name=name, file=path)
            text = self.folder.make_or_record_error(key, partial(load_workspace_text, self._org, name, path))
            if text is not None:
                values[key] = {"path": path, "text": text}
        return values


def _build_static_header(org: Organisation, ticks: list[int]) -> Json:
    """Return the header of the page without the values of a running engine."""
    header = build_view(org, "header")
    name = org.base.resolve().name
    static_fields: Json = {"org": name, "engine": None, "next_at": None}
    if header["state"] not in ("broken", "interrupted", "paused"):
        span = f"ticks {ticks[0]} to {ticks[-1]}" if ticks else "no tick has run yet"
        static_fields |= {"state": "report", "why": f"{span}; it shows, and changes nothing"}
    return {**header, **static_fields}


def _iter_workspace_files(agent: Json) -> Iterator[str]:
    """Yield the paths of an agent's workspace files, without links."""
    for file in agent["workspace"]["files"]:
        if not file["is_link"]:
            yield f"{paths.workspace_folder(agent['name'])}/{file['path']}"


def render_summary(header: Json, overview: Json, entries: Sequence[Json]) -> str:
    """Return the summary as HTML with every text escaped."""
    agents = overview.get("agents", {}).get("rows", [])[:AGENTS]
    ticks = overview.get("ticks", {}).get("ticks", [])[-TICKS:][::-1]
    parts = [
        f"<h1>{_escape_cell(header['org'])}</h1>",
        f"<p>{_escape_cell(header['why'])}. Next is tick {_escape_cell(header['tick'])}; "
        f"{_escape_cell(header.get('waiting', 0))} waiting for people. "
        "This is a summary: with JavaScript the page shows all of it.</p>",
        _render_table(
            "Agents",
            ("Agent", "Now", "Last words"),
            [(row["name"], row["text"] or row["label"], (row.get("last") or {}).get("text", "")) for row in agents],
        ),
        _render_table("Newest ticks", ("Tick", "When", "Turns", "Entries", "Worst end"), map(_tick_row, ticks)),
        _render_table(
            "Newest entries",
            ("Tick", "Agent", "Kind", "Text"),
            [(row["tick"], row["agent"], row["kind"], row["text"][:TEXT_CHARS]) for row in entries[:ENTRIES]],
        ),
    ]
    return f'<main class="summary">{"".join(parts)}</main>'


def _tick_row(row: Json) -> tuple[Any, ...]:
    worst = row["problem"] or row["worst"] or row["status"]
    return row["tick"], row["at"], f"{row['turns']} of {row['planned']}", row["entries"], worst


def _render_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table, or an empty string without rows. `title` and `columns` are trusted, cells are not."""
    body = "".join(f"<tr>{''.join(f'<td>{_escape_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in columns)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>" if body else ""


def _escape_cell(value: Any) -> str:
    """Return a value as safe HTML: escaped, with line breaks and its own text direction, without secrets.

    >>> _escape_cell("<b>a\\u202eb")
    '<bdi dir="auto">&lt;b&gt;a\\\\u202eb</bdi>'
    """
    plain = redact("" if value is None else str(value))
    visible = (char if char.isprintable() or char.isspace() else f"\\u{ord(char):04x}" for char in plain)
    lines = escape("".join(visible)).replace("\n", "<br>")
    return f'<bdi dir="auto">{lines}</bdi>'
