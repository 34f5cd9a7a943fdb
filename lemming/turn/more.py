"""Asking for leave to spend more than a limit allows: a request to persons, as the turn ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lemming.leave import SPEND, held_call, request_for

if TYPE_CHECKING:
    from lemming.turn.draft import Draft


def ask_for_more(draft: Draft, verdict: Mapping[str, Any]) -> None:
    """Have a turn ask for more of a limit, as a gate wants; what waits or was denied is not asked again."""
    review, line = draft.inputs.review, verdict["line"]
    about = review.get("spend", {}).get(line)
    if not about or not about["people"]:
        return
    args = {**about["more"], "of": verdict["about"]}
    for asked in review["asked"]:
        leave = asked["leave"]
        is_same = (leave["tool"], leave["gate"], leave["args"]) == (SPEND, line, args)
        if is_same and asked.get("end", "") != "approved":
            return
    agent, tick = draft.inputs.agent.name, draft.inputs.tick
    call = held_call(f"{tick}/{agent}/{SPEND}", SPEND, args, gate=line, why=verdict["why"])
    expires = (about["expires"],) if "expires" in about else ()
    draft.more.append(request_for(call, about["people"], expires, review["at"]))
