"""`attach`: files that go with an entry, each with the SHA-256 of what is in it.

What a turn's entry names is looked at as it is written. The look is a call like any other: recorded, and
taken from the record when the turn is taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from lemming.capabilities.toolbox.files import ReadsFiles
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import file_digest_of
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.patterns import is_among
from lemming.kernel.files.fields import Json
from lemming.kernel.files.fitting import about
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.places import Carried

FILES_LIMIT = 20
KEY = "attachments"


class Attach(ReadsFiles):
    """Looks at files that an entry is to carry."""

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
        files: Annotated[list[Any], about('The files, each {"path": ...}, up to 20.')],
    ) -> ToolResult:
        """Return each file with its digest, or why it cannot be attached, as JSON."""
        if len(files) > FILES_LIMIT:
            raise ToolError(f"{self.name}: at most {FILES_LIMIT} files")
        found = [_looked_at(context, item) for item in files]
        is_well = all("sha256" in item for item in found)
        return ToolResult(is_well, compact({"files": found}).decode())


def _looked_at(context: ToolContext, item: Any) -> dict[str, str]:
    """Return a file's place and digest, or its name and what is wrong."""
    if isinstance(item, str):
        item = {"path": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("path"), str) or not item["path"]:
        return {"error": 'an attachment is {"path": "shared/chart.png"}'}
    path, given = item["path"], item.get("sha256")
    try:
        place = resolve(context.agent, context.base, path, "read", caller=Attach.name)
        digest = file_digest_of(place, context.staged, context.removed)
    except ToolError as error:
        return {"path": path, "error": str(error)}
    if given not in (None, "", digest):
        return {"path": path, "error": f"its SHA-256 is {digest}, not {str(given)[:64]}; leave it out"}
    return {"path": place.key, "sha256": digest}


def filled_in(draft: Draft, payloads: Sequence[Json], at: str) -> list[Carried]:
    """Return payloads with the digests of attached files; an agent without the tool has none.

    What cannot be attached is left out of its payload, and the model is told why.
    """
    named = [item for payload in payloads if KEY in payload for item in _attachments(payload)]
    if not named or not is_among(Attach.name, draft.inputs.agent.permissions.tools):
        return [Carried(payload) for payload in payloads]
    place, call = len(draft.results), ToolCall(Attach.name, {"files": named})
    has_more_to_show = bool(draft.actionable_results)
    draft.use(call, at)
    found = iter(_found(draft.source.use(draft.numbers.last, call, at, {}).output, len(named)))
    if draft.results[place]["success"] and not has_more_to_show:
        draft.shown = len(draft.results)  # nothing to tell: it is no reason to ask the model once more
    return [_with(payload, found) if KEY in payload else Carried(payload) for payload in payloads]


def _with(payload: Json, found: Iterator[Json]) -> Carried:
    """Return a payload with what was found of its attachments, each of which is the next one."""
    kept = [item for item in (next(found) for _ in _attachments(payload)) if "sha256" in item]
    return Carried({**payload, KEY: kept}, {item["path"]: item["sha256"] for item in kept})


def _attachments(payload: Json) -> list[Any]:
    listed = payload[KEY]
    return listed if isinstance(listed, list) else [listed]


def _found(output: str, count: int) -> list[dict[str, Any]]:
    """Return what the tool said of each file; nothing of any where it could not be called."""
    try:
        found = parse(output)["files"]
    except (JsonProblem, KeyError, TypeError):
        return [{}] * count
    return found if len(found) == count else [{}] * count
