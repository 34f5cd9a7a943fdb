"""Attachments as a capability of the engine: the named files are read when entries are written and shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from lemming.capabilities.toolbox.file_tools import FileReadingTool
from lemming.ext import (
    Allowed,
    BindFiles,
    BuildPrompt,
    Capability,
    DescribeQuery,
    Interception,
    Interceptor,
    OptionalReadPath,
    OrgQuery,
    Preparation,
    SelectContext,
    SendRequest,
    TurnView,
    describe_field,
)
from lemming.kernel.access.agent_files import read_raw
from lemming.kernel.access.allowed_paths import grant_error, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError, Unusable
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.base.paths import MODELS_FILE
from lemming.kernel.files.field_types import Json
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Image, get_provider_class
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.turn_values import PayloadWithDigests
from lemming.libraries.agent_folders import compute_visible_digest


class AttachmentsCapability(Capability):
    """Attachments, for agents with the tool `attach` and for models with image input."""

    name = "attachments"
    handles = (BuildPrompt, BindFiles, SendRequest)
    describes = (OptionalReadPath,)

    def describe(self, query: DescribeQuery) -> Iterator[OptionalReadPath]:
        """Yield the files that agents may read: they may see images wherever they have read access."""
        if isinstance(query, OrgQuery):
            for name, agent in query.agents.items():
                grants = agent.permissions.file_access.allow_read
                yield from (OptionalReadPath(name, grant) for grant in grants if not grant_error(grant))

    def prepare(self, turn: Preparation) -> Json | None:
        """Return paths and digests of the images. The bytes are read for each model call."""
        images = turn.get_cache(TurnImages).images
        return {"images": images} if images else None

    def interceptor(self, turn: Preparation | TurnView) -> Interceptor:
        """Return the interceptor of a turn. That of an agent without the tool `attach` binds no files."""
        handles = (BuildPrompt, *((BindFiles,) if is_any_match(AttachTool.name, turn.agent.permissions.tools) else ()))
        return super().interceptor(turn)._replace(handles=handles)

    def intercept(self, effect: Any, turn: Preparation | TurnView) -> Interception:
        """Add the digests of attached files to payloads, and images to a prompt and to a request."""
        if isinstance(turn, Preparation):
            return turn.get_cache(TurnImages).intercept(effect) if turn.model.images else None
        if isinstance(effect, BindFiles):
            return Allowed(effect, fill_digests(turn, effect.payloads, effect.at))
        return self._add_images(effect, turn)

    def _add_images(self, effect: SendRequest, turn: TurnView) -> Interception:
        """Add the images for the end of the turn's prompt to a request. The bytes are read for each call."""
        references, inputs = turn.snapshot.get("images"), turn.inputs
        if not (references and effect.entry.images):
            return (yield effect)
        images = load_images(references, inputs.agent, Path(turn.live.base), turn.live.get_unwritten_files())
        request = effect.request._replace(images=images, images_with=inputs.prompt[-1]["content"])
        return (yield replace(effect, request=request))


class TurnImages:
    """The images attached to the entries that a turn shows."""

    def __init__(self, turn: Preparation) -> None:
        self._turn = turn
        self.images: list[Json] = []

    def intercept(self, effect: BuildPrompt) -> Interception:
        """Find the images. Raises `Unusable` if the model's provider does not support images."""
        context, entry = self._turn.context, self._turn.model
        if not get_provider_class(entry.provider, context.tick_context.config.org.plugins).takes_images:
            message = f'{entry.provider} {entry.model}: "images" must not be true: the provider does not accept images'
            raise Unusable(message, where=MODELS_FILE)
        self.images = _find_images(self._turn, _visible_entries(effect.selected))
        paths = (image["path"] for image in self.images)
        return (yield effect.change(source_paths=[*effect.prompt.source_paths, *paths]))


def _visible_entries(selected: SelectContext) -> Sequence[OutboxEntry]:
    if not (task := selected.task):
        return [*selected.inbox.unread, *selected.inbox.earlier]
    answers = [outcome.entry for outcome in task.outcomes if outcome.entry]
    return [*([task.request] if task.request else []), *task.thread, *answers]


# Images for models with `"images": true`. Journals have path and digest of each file; its bytes are read for the call.

IMAGES_LIMIT = 8
IMAGE_LIMIT_BYTES = 4 << 20
MEDIA_TYPES = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
_CALLER = "attachment"

FileReference = dict[str, str]
"""`{"path", "sha256"}`, as an entry names it."""


def _find_images(turn: Preparation, entries: Iterable[OutboxEntry]) -> list[FileReference]:
    """Return the images of entries that the agent may read and that are unchanged since attachment."""
    base, references = turn.org.base, dict[tuple[str, str], None]()
    listed = (entry.payload.get(KEY) for entry in entries)
    for item in (item for items in listed if isinstance(items, list) for item in items if _is_image(item)):
        with suppress(ToolError):
            path = resolve_path(turn.agent, base, _reader_path(base, item["path"]), "read", caller=_CALLER)
            if compute_visible_digest(path, turn.context.unwritten_files) == item["sha256"]:
                references[item["path"], item["sha256"]] = None
    return [{"path": path, "sha256": digest} for path, digest in references][:IMAGES_LIMIT]


def load_images(
    references: Iterable[FileReference], agent: Agent, base: Path, unwritten_files: Mapping[str, bytes]
) -> tuple[Image, ...]:
    """Return the images with their bytes, without changed and too large ones."""
    images = []
    for item in references:
        with suppress(ToolError):
            path = resolve_path(agent, base, _reader_path(base, item["path"]), "read", caller=_CALLER)
            raw = read_raw(path, unwritten_files, limit_bytes=IMAGE_LIMIT_BYTES)
            if sha256(raw).hexdigest() == item["sha256"]:  # it may be another one by now
                images.append(Image(_media_type(item["path"]), b64encode(raw).decode("ascii")))
    return tuple(images)


def _is_image(item: Any) -> bool:
    is_sound = isinstance(item, dict) and all(isinstance(item.get(key), str) for key in ("path", "sha256"))
    return is_sound and bool(_media_type(item["path"]))


def _media_type(path: str) -> str:
    return MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "")


def _reader_path(base: Path, path: str) -> str:
    """Return an attachment's path in a form valid for any agent: workspace files are absolute."""
    return f"{base}/{path}" if path.startswith("agents/") else path


# --- the tool `attach` ---------------------------------------------------------------------------
# The files of an entry are read when the entry is staged. This is an ordinary call: recorded, and read from the record on
# a replay.

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
        digest = compute_visible_digest(resolved, context.staged, context.removed)
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
    bound = []
    for payload in payloads:
        if KEY not in payload:
            bound.append(PayloadWithDigests(payload))
            continue
        valid = [item for item in (next(results) for _ in _attachment_list(payload)) if "sha256" in item]
        digests = {item["path"]: item["sha256"] for item in valid}
        bound.append(PayloadWithDigests({**payload, KEY: valid}, digests))
    return bound


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
