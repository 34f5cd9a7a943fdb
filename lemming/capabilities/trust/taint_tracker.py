"""Taint tracking of tool calls: compute the label of a result from the tool and the readable files.

The label is computed before the call and recorded with the result. Later runs take the label from the record.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import Any

from lemming.capabilities.trust.author_labels import make_labeler
from lemming.capabilities.trust.origins import label_arguments
from lemming.capabilities.trust.sidecar_labels import SidecarLabels
from lemming.capabilities.trust.trust_settings import AGENT, SourcedLabel
from lemming.capabilities.trust.turn_trust import TurnLabelState
from lemming.ext import (
    Allowed,
    CheckResult,
    Effect,
    Interception,
    LiveEffect,
    LivePhase,
    Outcome,
    RunTool,
    StartTool,
    ToolCall,
)
from lemming.kernel.access.allowed_paths import Access, nearest_readable
from lemming.kernel.access.grant_syntax import unsafe_path_reason
from lemming.kernel.base import paths
from lemming.kernel.files.canonical_path import canonical_path
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.memory import decode_record, get_trust_label, load_memories
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.tools import ANYWHERE, EngineTool, Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

RETURNS_NO_TEXT = ("attach",)
EDITING_TOOLS = ("file_edit", "file_move")
ACCESSES: tuple[Access, ...] = ("read", "write")
SUGGESTS_NAMES = ("memory_read", "store_read")
"""Tools whose result suggests existing names if the requested one is missing."""
SUGGESTS_FOLDERS = ("file_list",)
"""Tools whose result suggests a folder if the requested one is missing."""
SHELL_TOOL = "shell"


class CallTaintTracker:
    """Taint tracker for the calls of one turn."""

    def __init__(self, phase: LivePhase) -> None:
        self._authors = phase.tick_context.get_cache(make_labeler)
        self._label_state, self._results = TurnLabelState.from_inputs(phase.inputs), phase.results
        self._recorded_count = 0
        self._call_labels: dict[int, dict[str, Any]] = {}  # of calls without a recorded result
        self._sidecar_labels: SidecarLabels | None = None

    def intercept(self, effect: LiveEffect) -> Interception:
        """Write the facts `trust`, `trust_source` and `args_trust`, and label the result of a call.

        `args_trust` is a function that returns the labels of a call's arguments.
        """
        match effect:
            case RunTool():
                self._record_results()
                named = self._label_state.sources if self._authors.order.is_untrusted(self._label_state.label) else []
                facts = {"trust_source": named[0].source if named else "", "args_trust": self._label_arguments}
                return (yield replace(effect, facts={**effect.facts, "trust": self._label_state.label, **facts}))
            case StartTool():
                return (yield from self._label_call(effect))
            case CheckResult():
                call_label = self._call_labels[effect.context.index]
                trust = self._authors.order.lowest(
                    (self._label_state.label, call_label.get("is", self._label_state.label))
                )
                return (yield replace(effect, facts={**effect.facts, "trust": trust}))
        self._record_results()
        return (yield replace(effect, facts={**effect.facts, "trust": self._label_state.label}))

    def _record_results(self) -> None:
        """Record the labels of the results up to now, recorded or live."""
        for record in islice(self._results.values(), self._recorded_count, None):
            self._label_state.record_result(record.trust)
        self._recorded_count = len(self._results)

    def _label_arguments(self, args: Any) -> dict[str, Any]:
        return label_arguments(args, self._label_state.label, self._label_state.low_values)

    def _label_call(self, effect: StartTool) -> Generator[Effect, Any, Outcome]:
        """Label the files that a call may write before it starts, and then its result, for the record."""
        self._record_results()
        sidecar_labels = self._sidecar_labels = SidecarLabels(effect.context.org, self._authors, effect.context.staged)
        call_label = self._call_labels[effect.context.index] = self._inspect_call(effect)
        outcome = yield effect
        if not isinstance(outcome, Allowed):
            rejection: Outcome = outcome
            return rejection
        self._sidecar_labels, result = sidecar_labels, outcome.answer
        call_label = call_label | self._file_label_changes(effect, call_label, result)
        return replace(outcome, answer=replace(result, trust=call_label)) if call_label else outcome

    def _inspect_call(self, effect: StartTool) -> dict[str, Any]:
        """Return the label of a call's result, and label files that the call may write directly."""
        call, tool, context, call_label = effect.call, effect.tool, effect.context, dict[str, Any]()
        if tool is None or not isinstance(call.args, dict):
            return call_label
        assert self._sidecar_labels
        untrusted = [
            label_
            for label_ in self._result_labels(call, tool, context)
            if self._authors.order.is_untrusted(label_.label)
        ]
        if untrusted:
            label = self._authors.order.lowest(label_.label for label_ in untrusted)
            sources = [label_ for label_ in dict.fromkeys(untrusted) if label_.label == label][:16]
            call_label = {"is": label, "from": [{"is": item.label, "of": item.source} for item in sources]}
        folders = self._writable_folders(tool, context)
        # The label of the result counts too: a command that copies writes what it reads.
        lowest = self._authors.order.lowest((self._label_state.label, call_label.get("is", AGENT)))
        if folders and self._authors.order.is_untrusted(lowest):
            call_label["below"] = folders
            previous_labels = [self._sidecar_labels.get_label(f"{folder}/") for folder in folders]
            call_label["bears"] = {
                item.source: {"is": item.label, "of": item.source}
                for item in previous_labels
                if self._authors.order.is_untrusted(item.label)
            }
            self._label_before_call(context, call_label)
        return call_label

    def _file_label_changes(
        self, effect: StartTool, call_label: Mapping[str, Any], result: ToolResult
    ) -> dict[str, Any]:
        """Return the files with a sidecar label so far, with the labels of files possibly containing earlier
        text.

        A memory has no sidecar label, because its own record contains the label.
        """
        if self._sidecar_labels is None or effect.tool is None or not result.effects:
            return {}
        order, effect_paths = self._authors.order, [file_effect.path_key for file_effect in result.effects]
        labelled = [path for path in effect_paths if order.is_untrusted(self._sidecar_labels.get_raw_label(path))]
        changes: dict[str, Any] = {"marked": labelled} if labelled else {}
        # A whole rewrite keeps nothing of the old text. An append or a move does, and inherits its label.
        if effect.tool.replaces_whole:
            return changes
        memories = f"{paths.memory_folder(effect.context.agent.name)}/"
        previous_labels = [self._file_label(path, effect.context) for path in effect_paths if path.startswith(memories)]
        previous_labels += map(self._sidecar_labels.get_label, labelled)
        lowest = min(previous_labels, key=lambda part: order.rank(part.label), default=None)
        if lowest is None or not order.is_untrusted(lowest.label):
            return changes
        source = {"is": lowest.label, "of": lowest.source}
        written_paths = [file_effect.path_key for file_effect in result.effects if not file_effect.removes]
        return {**changes, "bears": call_label.get("bears", {}) | dict.fromkeys(written_paths, source)}

    def _result_labels(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[SourcedLabel]:
        """Yield the label of each source with possible influence on a result."""
        assert self._sidecar_labels
        tool_label_ = self._authors.tool_label(call.tool)
        if tool_label_:
            yield SourcedLabel(tool_label_, f"what {call.tool} gives")
        if source := tool.source_file(context.agent.name, call.args):
            path = canonical_path(context.base, source)
            yield self._file_label(path, context)
            if call.tool in SUGGESTS_NAMES and not self._exists(path, context):
                yield from self._neighbour_labels(path, context)
        elif not tool_label_:
            for path in self._readable_places(call, tool, context):
                yield from self._sidecar_labels.iter_folder_labels(canonical_path(context.base, path))
        if not tool_label_:
            yield from self._nearest(call, tool, context)
        if not tool_label_ and (not isinstance(tool, EngineTool) or call.tool == "memory_read"):
            for key, label in self._memory_labels(context).items() if not source else ():
                yield SourcedLabel(label, paths.memory_file(context.agent.name, key))

    def _file_label(self, path: str, context: ToolContext) -> SourcedLabel:
        """Return the label of a file returned by a call. The file may be a memory."""
        assert self._sidecar_labels
        if not path.startswith(f"{paths.memory_folder(context.agent.name)}/"):
            return self._sidecar_labels.get_label(path)
        if path in context.staged:
            label = get_trust_label(decode_record(context.staged[path], path))
            return SourcedLabel(self._authors.order.normalize(label) if label else AGENT, path)
        key = path.rpartition("/")[2].removesuffix(".json")
        return SourcedLabel(self._memory_labels(context).get(key, AGENT), path)

    def _exists(self, path: str, context: ToolContext) -> bool:
        return path in context.staged or (path not in context.removed and path_exists(os.path.join(context.base, path)))

    def _neighbour_labels(self, path: str, context: ToolContext) -> Iterator[SourcedLabel]:
        """Yield the labels of neighbours in the same memory or store, because a result may mention their
        names.
        """
        assert self._sidecar_labels
        folder = path.rpartition("/")[0]
        if folder != paths.memory_folder(context.agent.name):
            yield from self._sidecar_labels.iter_folder_labels(folder)
        else:
            for key, label in self._memory_labels(context).items():
                yield SourcedLabel(label, paths.memory_file(context.agent.name, key))

    def _nearest(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[SourcedLabel]:
        """Yield the labels of files suggested by name for a missing path."""
        assert self._sidecar_labels
        if not isinstance(tool, EngineTool) or (tool.tool_class != "read" and call.tool not in EDITING_TOOLS):
            return
        files = call.args.get("files")
        candidates = [call.args, *(files if isinstance(files, list) else ())]
        name = context.agent.name
        for path in (item.get("path") if isinstance(item, dict) else item for item in candidates):
            # An impossible path (with a NUL byte) is refused without a suggestion.
            if isinstance(path, str) and path and not unsafe_path_reason(path, paths.components(path)):
                yield from self._suggestion_labels(path, name, context, is_folder=call.tool in SUGGESTS_FOLDERS)

    def _suggestion_labels(
        self, path: str, name: str, context: ToolContext, *, is_folder: bool
    ) -> Iterator[SourcedLabel]:
        assert self._sidecar_labels
        if self._exists(canonical_path(context.base, paths.resolve_agent_path(name, path)), context):
            return
        for access in ACCESSES:
            if nearest := nearest_readable(context.agent, context.base, path, access, is_folder):
                suggestion = canonical_path(context.base, paths.resolve_agent_path(name, nearest))
                # The name of a folder was chosen by whoever filled it.
                yield from (
                    self._sidecar_labels.iter_folder_labels(suggestion)
                    if is_folder
                    else (self._sidecar_labels.get_label(suggestion),)
                )

    def _memory_labels(self, context: ToolContext) -> dict[str, str]:
        name = context.agent.name
        return self._authors.memory_labels(name, load_memories(context.org, name))

    def _readable_places(self, call: ToolCall, tool: Tool, context: ToolContext) -> Iterator[str]:
        """Yield the files and folders readable by a call."""
        name, settings = context.agent.name, context.settings
        # Results of servers have the label of the settings (`mcp.*`): what a server reads is unknown.
        if call.tool.startswith(PREFIXES) or call.tool in RETURNS_NO_TEXT:
            return
        path = call.args.get("path", "." if call.tool == "file_list" else None)
        if isinstance(tool, EngineTool) and isinstance(path, str) and path:
            if tool.tool_class == "read" or call.tool == "file_edit":
                yield paths.resolve_agent_path(name, path)
            return
        yield from tool.read_paths(context.agent, settings)
        if call.tool == SHELL_TOOL or not isinstance(tool, EngineTool):
            yield paths.workspace_folder(name)
            if ANYWHERE in tool.write_paths(context.agent, settings):
                yield ANYWHERE

    def _writable_folders(self, tool: Tool, context: ToolContext) -> list[str]:
        """Return the folders a call may write directly. The writes of a remote server are unknown."""
        workspace = paths.workspace_folder(context.agent.name)
        if tool.name.startswith(PREFIXES) or tool.tool_class == "read":
            return []
        if isinstance(tool, EngineTool) and tool.name != SHELL_TOOL:
            return []
        places = tool.write_paths(context.agent, context.settings)
        paths_written = (canonical_path(context.base, allowed) for allowed in places)
        return sorted({workspace, *(["shared"] if ANYWHERE in places else paths_written)})

    def _label_before_call(self, context: ToolContext, call_label: Mapping[str, Any]) -> None:
        """Label the possible writes of a call before the call, because the writes stay even if the turn
        fails.
        """
        label_state, sync = deepcopy(self._label_state), context.settings.durability != "off"
        label_state.record_result(call_label)
        for label_effect in label_state.folder_label_effects():
            apply_effect(context.base, label_effect, is_replay=True, sync=sync)
