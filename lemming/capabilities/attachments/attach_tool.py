"""The tool `attach`: files attached to an entry, each with the SHA-256 digest.

The files of an entry are read when the entry is staged. This is an ordinary call: recorded, and read from the
record on a replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from lemming.capabilities.toolbox.file_tools import FileReadingTool
from lemming.ext import TurnView, describe_field
from lemming.kernel.access.agent_files import compute_file_digest
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.guards import PayloadWithDigests

FILES_LIMIT = 20
KEY = "attachments"


class AttachTool(FileReadingTool):
    """Reads the files that an entry is to carry."""

    name = "attach"
    description = (
        'To attach files to an entry, write its payload.attachments as [{"path": "shared/chart.png"}]: '
        "the engine fills in the SHA-256. A call only checks them."
    )
    success_is_news = False
    place_arguments = ("files",)
    output_limit_bytes = 128 << 10

    def plan(
        self,
        context: ToolContext,
        files: Annotated[list[Any], describe_field('The files, each {"path": ...}, up to 20.')],
    ) -> ToolResult:
        """Return each file with the digest, or the problem, as JSON."""
        if len(files) > FILES_LIMIT:
            raise ToolError(f"{self.name}: at most {FILES_LIMIT} files")
        results = [_inspect_file(context, item) for item in files]
        is_valid = all("sha256" in item for item in results)
        return ToolResult(is_valid, dump_compact({"files": results}).decode())


def _inspect_file(context: ToolContext, item: Any) -> dict[str, str]:
    """Return a file's path and digest, or the name and the problem."""
    if isinstance(item, str):
        item = {"path": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("path"), str) or not item["path"]:
        return {"error": 'an attachment is {"path": "shared/chart.png"}'}
    path, expected = item["path"], item.get("sha256")
    try:
        resolved = resolve_path(context.agent, context.base, path, "read", caller=AttachTool.name)
        digest = compute_file_digest(resolved, context.staged, context.removed)
    except ToolError as error:
        return {"path": path, "error": str(error)}
    if expected not in (None, "", digest):
        return {"path": path, "error": f"its SHA-256 is {digest}, not {str(expected)[:64]}; leave it out"}
    return {"path": resolved.path_key, "sha256": digest}


def fill_digests(turn: TurnView, payloads: Sequence[Json], at: str) -> list[PayloadWithDigests]:
    """Return payloads with the digests of attached files. An invalid attachment is removed, and the model is told."""
    references = [item for payload in payloads if KEY in payload for item in _attachment_list(payload)]
    if not references or not is_any_match(AttachTool.name, turn.agent.permissions.tools):
        return [PayloadWithDigests(payload) for payload in payloads]
    result = turn.call_tool(AttachTool.name, {"files": references}, at)
    results = iter(_parse_results(result.output, len(references)))
    return [_with_digests(payload, results) if KEY in payload else PayloadWithDigests(payload) for payload in payloads]


def _with_digests(payload: Json, results: Iterator[Json]) -> PayloadWithDigests:
    """Return a payload with the digests of the attachments, taken in order from `results`."""
    valid = [item for item in (next(results) for _ in _attachment_list(payload)) if "sha256" in item]
    return PayloadWithDigests({**payload, KEY: valid}, {item["path"]: item["sha256"] for item in valid})


def _attachment_list(payload: Json) -> list[Any]:
    listed = payload[KEY]
    return listed if isinstance(listed, list) else [listed]


def _parse_results(output: str, count: int) -> list[dict[str, Any]]:
    """Return the tool's result for each file, or empty dicts if the call failed."""
    try:
        results = parse(output)["files"]
    except (JsonProblem, KeyError, TypeError):
        return [{}] * count
    return results if len(results) == count else [{}] * count
