"""How far what a tool call gives is trusted: by the tool, and by the files that its calls look at.

It is worked out before the call, recorded with its result, and taken from the record ever after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from lemming.capabilities.trust.authors import authors_in
from lemming.capabilities.trust.marks import Marks
from lemming.capabilities.trust.origins import args_trust, low_values
from lemming.capabilities.trust.turn import TurnTrust
from lemming.capabilities.trust.words import AGENT, TRUST, Part
from lemming.kernel.access.allowed_paths import Access, nearest_readable
from lemming.kernel.access.grants import why_unsafe
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.paths import components, place_of
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.files.real_place import opened_place
from lemming.kernel.files.stamps import is_there
from lemming.kernel.memory import decode_record, read_memories, trust_in
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.tools import ANYWHERE, EngineTool, Tool, ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.values import TurnInputs

GIVES_NO_TEXT = ("attach",)
CHANGES_A_FILE = ("file_edit", "file_move")
ACCESSES: tuple[Access, ...] = ("read", "write")
NAMES_THE_NEAREST = ("memory_read", "store_read")
"""Those that name what there is, where there is nothing of the name they are asked for."""
NAMES_FOLDERS = ("file_list",)
"""Those that name a folder, where there is none at the path they are asked for."""
RUNS_ANYTHING = "shell"


class TrustTracing:
    """The calls of one turn that is tracked."""

    def __init__(self, now: Surroundings, inputs: TurnInputs) -> None:
        self._authors, self._turn = now.own(authors_in), TurnTrust.of(inputs)
        self._told: dict[str, Any] = inputs.given[TRUST]
        self._given: dict[str, Any] = {}
        self._marks: Marks | None = None
        self._tool: Tool | None = None
        self._context: ToolContext | None = None

    @property
    def word(self) -> str:
        """How far the turn is trusted by now."""
        return self._turn.word

    @property
    def source(self) -> str:
        """What made the turn trusted less than agents are; empty where nothing did."""
        named = self._turn.sources if self._authors.order.is_low(self.word) else []
        return named[0].source if named else ""

    def facts_of_args(self, args: Any) -> dict[str, Any]:
        """Return the trust labels of a call's arguments for gates."""
        return args_trust(args, self.word, low_values(self._told, self.word))

    @property
    def word_after(self) -> str:
        """How far it will be, once it has been given what the call gives that was looked at last."""
        return self._authors.order.lowest((self.word, self._given.get("is", self.word)))

    def take(self, result: ToolResult) -> None:
        """Note what a call gave, recorded or live, as the turn does."""
        self._turn.take(result.trust)

    def look(self, call: ToolCall, tool: Tool | None, context: ToolContext) -> None:
        """Look at what a call that is about to be made may look at, and mark what it may write by itself."""
        self._tool, self._context, self._given = tool, context, {}
        self._marks = Marks(context.org, self._authors, context.staged)
        if tool is None or not isinstance(call.args, dict):
            return
        low = [part for part in self._parts(call, tool, context) if self._authors.order.is_low(part.word)]
        if low:
            word = self._authors.order.lowest(part.word for part in low)
            named = [part for part in dict.fromkeys(low) if part.word == word][:16]
            self._given = {"is": word, "from": [{"is": it.word, "of": it.source} for it in named]}
        below = self._writes(tool, context)
        lowest = self._authors.order.lowest((self._turn.word, self._given.get("is", AGENT)))
        if below and self._authors.order.is_low(lowest):
            self._given["below"] = below
            before = [self._marks.of(f"{folder}/") for folder in below]
            self._given["bears"] = {
                it.source: {"is": it.word, "of": it.source}
                for it in before
                if self._authors.order.is_low(it.word)
            }
            self._mark_at_once(context)

    def recorded_result(self, result: ToolResult) -> ToolResult:
        """Return the result of the call, with how far it and the files it wants written are trusted."""
        given = self._given | self._of_files(result)
        return replace(result, trust=given) if given else result

    def _of_files(self, result: ToolResult) -> dict[str, Any]:
        """Return the files that have a mark by now, with the labels of those that may hold earlier text.

        A memory has no mark: its own record says how far it was trusted.
        """
        if self._marks is None or self._tool is None or self._context is None or not result.effects:
            return {}
        order, places = self._authors.order, [effect.place for effect in result.effects]
        marked = [place for place in places if order.is_low(self._marks.marked(place))]
        told: dict[str, Any] = {"marked": marked} if marked else {}
        if self._tool.replaces_whole:
            return told
        memories = f"{paths.memory_folder(self._context.agent.name)}/"
        before = [self._file(place, self._context) for place in places if place.startswith(memories)]
        before += map(self._marks.of, marked)
        lowest = min(before, key=lambda part: order.rank(part.word), default=None)
        if lowest is None or not order.is_low(lowest.word):
            return told
        source = {"is": lowest.word, "of": lowest.source}
        written = [effect.place for effect in result.effects if not effect.removes]
        return {**told, "bears": self._given.get("bears", {}) | dict.fromkeys(written, source)}

    def _parts(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[Part]:
        """Yield how far each thing is trusted that a result may tell of."""
        assert self._marks
        named = self._authors.of_tool(call.tool)
        if named:
            yield Part(named, f"what {call.tool} gives")
        if source := tool.source(context.agent.name, call.args):
            place = opened_place(context.base, source)
            yield self._file(place, context)
            if call.tool in NAMES_THE_NEAREST and not self._is_there(place, context):
                yield from self._beside(place, context)
        elif not named:
            for place in self._places(call, tool, context):
                yield from self._marks.below(opened_place(context.base, place))
        if not named:
            yield from self._nearest(call, tool, context)
        if not named and (not isinstance(tool, EngineTool) or call.tool == "memory_read"):
            for key, word in self._memories(context).items() if not source else ():
                yield Part(word, paths.memory_file(context.agent.name, key))

    def _file(self, place: str, context: ToolContext) -> Part:
        """Return how far a file is trusted that a call gives, a memory among them."""
        assert self._marks
        if not place.startswith(f"{paths.memory_folder(context.agent.name)}/"):
            return self._marks.of(place)
        if place in context.staged:
            word = trust_in(decode_record(context.staged[place], place))
            return Part(self._authors.order.known(word) if word else AGENT, place)
        key = place.rpartition("/")[2].removesuffix(".json")
        return Part(self._memories(context).get(key, AGENT), place)

    def _is_there(self, place: str, context: ToolContext) -> bool:
        return place in context.staged or (
            place not in context.removed and is_there(os.path.join(context.base, place))
        )

    def _beside(self, place: str, context: ToolContext) -> Iterator[Part]:
        """Yield how far what stands beside a memory, or in the same store, is trusted: its name is told."""
        assert self._marks
        folder = place.rpartition("/")[0]
        if folder != paths.memory_folder(context.agent.name):
            yield from self._marks.below(folder)
        else:
            for key, word in self._memories(context).items():
                yield Part(word, paths.memory_file(context.agent.name, key))

    def _nearest(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[Part]:
        """Yield how far files are trusted whose names are told, since there is none at the path of a call."""
        assert self._marks
        if not isinstance(tool, EngineTool) or (
            tool.tool_class != "read" and call.tool not in CHANGES_A_FILE
        ):
            return
        files = call.args.get("files")
        named = [call.args, *(files if isinstance(files, list) else ())]
        name = context.agent.name
        for path in (it.get("path") if isinstance(it, dict) else it for it in named):
            # A path that can be none (a NUL byte in it) is refused, and no name is told.
            if isinstance(path, str) and path and not why_unsafe(path, components(path)):
                yield from self._nearest_to(path, name, context, is_folder=call.tool in NAMES_FOLDERS)

    def _nearest_to(self, path: str, name: str, context: ToolContext, *, is_folder: bool) -> Iterator[Part]:
        assert self._marks
        if self._is_there(opened_place(context.base, place_of(name, path)), context):
            return
        for access in ACCESSES:
            if nearest := nearest_readable(context.agent, context.base, path, access, is_folder):
                place = opened_place(context.base, place_of(name, nearest))
                # A folder is named by who put something into it.
                yield from self._marks.below(place) if is_folder else (self._marks.of(place),)

    def _memories(self, context: ToolContext) -> dict[str, str]:
        name = context.agent.name
        return self._authors.of_memories(name, read_memories(context.org, name))

    def _places(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[str]:
        """Yield the files and folders that a call may look at."""
        name, settings = context.agent.name, context.settings
        if call.tool.startswith(PREFIXES) or call.tool in GIVES_NO_TEXT:
            return
        path = call.args.get("path", "." if call.tool == "file_list" else None)
        if isinstance(tool, EngineTool) and isinstance(path, str) and path:
            if tool.tool_class == "read" or call.tool == "file_edit":
                yield place_of(name, path)
            return
        yield from tool.reads(context.agent, settings)
        if call.tool == RUNS_ANYTHING or not isinstance(tool, EngineTool):
            yield paths.workspace_folder(name)
            if ANYWHERE in tool.writes(context.agent, settings):
                yield ANYWHERE

    def _writes(self, tool: Tool, context: ToolContext) -> list[str]:
        """Return the folders in which a call may write by itself; what a server does there is not known."""
        own = paths.workspace_folder(context.agent.name)
        if tool.name.startswith(PREFIXES) or tool.tool_class == "read":
            return []
        if isinstance(tool, EngineTool) and tool.name != RUNS_ANYTHING:
            return []
        places = tool.writes(context.agent, context.settings)
        written = (opened_place(context.base, place) for place in places)
        return sorted({own, *(["shared"] if ANYWHERE in places else written)})

    def _mark_at_once(self, context: ToolContext) -> None:
        """Mark what a call may write before it can: what it does stays, whatever becomes of the turn."""
        turn, sync = deepcopy(self._turn), context.settings.durability != "off"
        turn.take(self._given)
        for mark in turn.marks_below():
            apply_effect(context.base, mark, again=True, sync=sync)
