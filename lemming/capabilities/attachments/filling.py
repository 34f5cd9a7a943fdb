"""Files that an entry names in `payload.attachments`: looked at by the tool `attach` as it is written.

The look is a call like any other: recorded, and taken from the record when the turn is taken again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lemming.capabilities.attachments.tool import Attach
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.patterns import is_among
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.draft import Draft

KEY = "attachments"


def fill_in(draft: Draft, first: int) -> None:
    """Put the digests of attached files into the entries from `first` on; an agent without the tool has none.

    What cannot be attached is left out of its entry, and the model is told why.
    """
    entries, at = draft.entries[first:], draft.answers[-1].at
    named = [item for entry in entries if KEY in entry.payload for item in _attachments(entry)]
    if not named or not is_among(Attach.name, draft.inputs.agent.permissions.tools):
        return
    index, call = len(draft.results), ToolCall(Attach.name, {"files": named})
    has_more_to_show = bool(draft.unshown)
    draft.use(call, at)
    found = iter(_found(draft.source.use(index, call, at, {}).output, len(named)))
    for place, entry in enumerate(entries, first):
        if KEY in entry.payload:
            kept = [item for item in (next(found) for _ in _attachments(entry)) if "sha256" in item]
            draft.entries[place] = replace(entry, payload={**entry.payload, KEY: kept})
    if draft.results[index]["success"] and not has_more_to_show:
        draft.shown = len(draft.results)  # nothing to tell: it is no reason to ask the model once more


def _attachments(entry: OutboxEntry) -> list[Any]:
    listed = entry.payload[KEY]
    return listed if isinstance(listed, list) else [listed]


def _found(output: str, count: int) -> list[dict[str, Any]]:
    """Return what the tool said of each file; nothing of any where it could not be called."""
    try:
        found = parse(output)["files"]
    except (JsonProblem, KeyError, TypeError):
        return [{}] * count
    return found if len(found) == count else [{}] * count
