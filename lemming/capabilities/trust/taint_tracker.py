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

from lemming.capabilities.trust.author_labels import OrgTrustLabeler, make_labeler
from lemming.capabilities.trust.origins import label_arguments
from lemming.capabilities.trust.sidecar_labels import SidecarLabels
from lemming.capabilities.trust.trust_settings import AGENT, TRUST, SourcedLabel
from lemming.capabilities.trust.turn_trust import TurnLabelState
from lemming.ext import Allowed, CheckResult, Effect, Interception, LiveEffect, LivePhase, Outcome, RunTool, StartTool
from lemming.kernel.access.allowed_paths import Access, nearest_readable, unsafe_path_reason
from lemming.kernel.base import paths
from lemming.kernel.files.canonical_path import canonical_path
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.memory import decode_record, get_trust_label, load_memories
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.tools import ANYWHERE, EngineTool, Tool, ToolResult

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
        inputs, self._results = phase.inputs, phase.results
        self._label_state = TurnLabelState(inputs.given[TRUST], inputs.agent.name, inputs.tick)
        self._recorded_count = 0
        self._call_labels: dict[int, dict[str, Any]] = {}  # of calls without a recorded result

    def intercept(self, effect: LiveEffect) -> Interception:
        """Write the facts `trust`, `trust_source` and `args_trust`, and label the result of a call.

        `args_trust` is a function from the arguments of a call to the labels.
        """
        order, state = self._authors.order, self._label_state
        match effect:
            case StartTool():
                return (yield from self._label_call(effect))
            case CheckResult():
                call_label = self._call_labels[effect.context.index]
                trust = order.lowest((state.label, call_label.get("is", state.label)))
                return (yield replace(effect, facts={**effect.facts, "trust": trust}))
        self._record_results()
        facts: dict[str, Any] = {**effect.facts, "trust": state.label}
        if isinstance(effect, RunTool):
            facts["trust_source"] = state.sources[0].source if state.sources and order.is_untrusted(state.label) else ""
            facts["args_trust"] = lambda args: label_arguments(args, state.label, state.low_values)
        return (yield replace(effect, facts=facts))

    def _record_results(self) -> None:
        """Record the labels of the results up to now, recorded or live."""
        for record in islice(self._results.values(), self._recorded_count, None):
            self._label_state.record_result(record.trust)
        self._recorded_count = len(self._results)

    def _label_call(self, effect: StartTool) -> Generator[Effect, Any, Outcome]:
        """Label the possible files of a call before the call, and then the result, for the record."""
        self._record_results()
        files = CallFiles(effect, effect.tool, self._authors) if effect.tool else None
        call_label = self._inspect_call(effect, files) if files and isinstance(effect.call.args, dict) else {}
        self._call_labels[effect.context.index] = call_label
        outcome: Outcome = yield effect
        if not isinstance(outcome, Allowed) or not files:
            return outcome
        call_label = call_label | files.find_label_changes(call_label, outcome.answer)
        return replace(outcome, answer=replace(outcome.answer, trust=call_label)) if call_label else outcome

    def _inspect_call(self, effect: StartTool, files: CallFiles) -> dict[str, Any]:
        """Return the label of a call's result, and label the directly writable files."""
        order, call_label = self._authors.order, dict[str, Any]()
        if untrusted := [label for label in files.result_labels() if order.is_untrusted(label.label)]:
            lowest = order.lowest(label.label for label in untrusted)
            sources = [label for label in dict.fromkeys(untrusted) if label.label == lowest][:16]
            call_label = {"is": lowest, "from": [_to_record(label) for label in sources]}
        folders = files.writable_folders()
        # The label of the result counts too: a command that copies writes what it reads.
        if folders and order.is_untrusted(order.lowest((self._label_state.label, call_label.get("is", AGENT)))):
            call_label["below"] = folders
            previous_labels = [files.sidecar_labels.get_label(f"{folder}/") for folder in folders]
            inherited = [label for label in previous_labels if order.is_untrusted(label.label)]
            call_label["bears"] = {label.source: _to_record(label) for label in inherited}
            # Labelled before the call, because its writes stay even if the turn fails.
            label_state, sync = deepcopy(self._label_state), effect.context.settings.durability != "off"
            label_state.record_result(call_label)
            for label_effect in label_state.folder_label_effects():
                apply_effect(effect.context.base, label_effect, is_replay=True, sync=sync)
        return call_label


def _to_record(label: SourcedLabel) -> dict[str, str]:
    return {"is": label.label, "of": label.source}


class CallFiles:
    """The files readable and writable by a call, with the trust labels before the call."""

    def __init__(self, effect: StartTool, tool: Tool, authors: OrgTrustLabeler) -> None:
        self._call, self._tool, self._context, self._authors = effect.call, tool, effect.context, authors
        self._name = effect.context.agent.name
        self.sidecar_labels = SidecarLabels(effect.context.org, authors, effect.context.staged)

    def result_labels(self) -> Iterator[SourcedLabel]:
        """Yield the label of each source with possible influence on the result."""
        call, tool, base = self._call, self._tool, self._context.base
        tool_label, source = self._authors.tool_label(call.tool), tool.source_file(self._name, call.args)
        if tool_label:
            yield SourcedLabel(tool_label, f"what {call.tool} gives")
        if source:
            path = canonical_path(base, source)
            yield self._file_label(path)
            if call.tool in SUGGESTS_NAMES and not self._exists(path):
                # The result may mention the names of neighbours in the same memory or store.
                folder = path.rpartition("/")[0]
                is_memory = folder == paths.memory_folder(self._name)
                yield from self._memory_labels() if is_memory else self.sidecar_labels.iter_folder_labels(folder)
        if tool_label:
            return
        if not source:
            for place in self._readable_places():
                yield from self.sidecar_labels.iter_folder_labels(canonical_path(base, place))
        yield from self._suggestion_labels()
        if not source and (not isinstance(tool, EngineTool) or call.tool == "memory_read"):
            yield from self._memory_labels()

    def find_label_changes(self, call_label: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
        """Return the files with a sidecar label so far, with the labels of files possibly with earlier text.

        A memory has no sidecar label, because its own record contains the label.
        """
        order, effect_paths = self._authors.order, [effect.path_key for effect in result.effects]
        labelled = [path for path in effect_paths if order.is_untrusted(self.sidecar_labels.get_raw_label(path))]
        changes: dict[str, Any] = {"marked": labelled} if labelled else {}
        # A whole rewrite keeps nothing of the old text. An append or a move does, and inherits its label.
        if self._tool.replaces_whole:
            return changes
        memories = f"{paths.memory_folder(self._name)}/"
        previous_labels = [self._file_label(path) for path in effect_paths if path.startswith(memories)]
        previous_labels += map(self.sidecar_labels.get_label, labelled)
        lowest = min(previous_labels, key=lambda label: order.rank(label.label), default=None)
        if lowest is None or not order.is_untrusted(lowest.label):
            return changes
        written_paths = [effect.path_key for effect in result.effects if not effect.removes]
        return {**changes, "bears": call_label.get("bears", {}) | dict.fromkeys(written_paths, _to_record(lowest))}

    def _file_label(self, path: str) -> SourcedLabel:
        """Return the label of a file returned by the call. The file may be a memory."""
        if not path.startswith(f"{paths.memory_folder(self._name)}/"):
            return self.sidecar_labels.get_label(path)
        if path in self._context.staged:
            label = get_trust_label(decode_record(self._context.staged[path], path))
            return SourcedLabel(self._authors.order.normalize(label) if label else AGENT, path)
        labels = {memory.source: memory.label for memory in self._memory_labels()}
        return SourcedLabel(labels.get(path, AGENT), path)

    def _memory_labels(self) -> Iterator[SourcedLabel]:
        memories = load_memories(self._context.org, self._name)
        for key, label in self._authors.memory_labels(self._name, memories).items():
            yield SourcedLabel(label, paths.memory_file(self._name, key))

    def _exists(self, path: str) -> bool:
        context = self._context
        return path in context.staged or (path not in context.removed and path_exists(os.path.join(context.base, path)))

    def _suggestion_labels(self) -> Iterator[SourcedLabel]:
        """Yield the labels of files suggested by name for a missing path."""
        call, tool, context, is_folder = self._call, self._tool, self._context, self._call.tool in SUGGESTS_FOLDERS
        if not isinstance(tool, EngineTool) or (tool.tool_class != "read" and call.tool not in EDITING_TOOLS):
            return

        def resolve(path: str) -> str:
            return canonical_path(context.base, paths.resolve_agent_path(self._name, path))

        files = call.args.get("files")
        candidates = [call.args, *(files if isinstance(files, list) else ())]
        for path in (item.get("path") if isinstance(item, dict) else item for item in candidates):
            # An impossible path (with a NUL byte) is refused without a suggestion.
            if not isinstance(path, str) or not path or unsafe_path_reason(path, paths.components(path)):
                continue
            for access in ACCESSES if not self._exists(resolve(path)) else ():
                if nearest := nearest_readable(context.agent, context.base, path, access, is_folder):
                    # The name of a folder was chosen by whoever filled it.
                    yield from (
                        self.sidecar_labels.iter_folder_labels(resolve(nearest))
                        if is_folder
                        else (self.sidecar_labels.get_label(resolve(nearest)),)
                    )

    def _readable_places(self) -> Iterator[str]:
        """Yield the files and folders readable by the call."""
        call, tool, agent, settings = self._call, self._tool, self._context.agent, self._context.settings
        # Results of servers have the label of the settings (`mcp.*`): what a server reads is unknown.
        if call.tool.startswith(PREFIXES) or call.tool in RETURNS_NO_TEXT:
            return
        path = call.args.get("path", "." if call.tool == "file_list" else None)
        if isinstance(tool, EngineTool) and isinstance(path, str) and path:
            if tool.tool_class == "read" or call.tool == "file_edit":
                yield paths.resolve_agent_path(self._name, path)
            return
        yield from tool.read_paths(agent, settings)
        if call.tool == SHELL_TOOL or not isinstance(tool, EngineTool):
            yield paths.workspace_folder(self._name)
            if ANYWHERE in tool.write_paths(agent, settings):
                yield ANYWHERE

    def writable_folders(self) -> list[str]:
        """Return the folders the call may write directly. The writes of a remote server are unknown."""
        tool, context = self._tool, self._context
        if tool.name.startswith(PREFIXES) or tool.tool_class == "read":
            return []
        if isinstance(tool, EngineTool) and tool.name != SHELL_TOOL:
            return []
        places = tool.write_paths(context.agent, context.settings)
        written_paths = ["shared"] if ANYWHERE in places else [canonical_path(context.base, place) for place in places]
        return sorted({paths.workspace_folder(self._name), *written_paths})
