"""Files that an entry names in `payload.attachments`: looked at by the tool `attach` as it is written.

The look is a call like any other: recorded, and taken from the record when the turn is taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lemming.capabilities.attachments.tool import Attach
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.patterns import is_among
from lemming.kernel.files.fields import Json
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.places import Carried

KEY = "attachments"


def filled_in(draft: Draft, payloads: Sequence[Json], at: str) -> list[Carried]:
    """Return payloads with the digests of attached files; an agent without the tool has none.

    What cannot be attached is left out of its payload, and the model is told why.
    """
    named = [item for payload in payloads if KEY in payload for item in _attachments(payload)]
    if not named or not is_among(Attach.name, draft.inputs.agent.permissions.tools):
        return [Carried(payload) for payload in payloads]
    index, call = len(draft.results), ToolCall(Attach.name, {"files": named})
    has_more_to_show = bool(draft.unshown)
    draft.use(call, at)
    found = iter(_found(draft.source.use(index, call, at, {}).output, len(named)))
    if draft.results[index]["success"] and not has_more_to_show:
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
