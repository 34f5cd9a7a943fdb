"""The summary of what a prompt leaves out, asked for before all else where a resume says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lemming.errors import ContractError, OutOfCredits, ProviderError
from lemming.providers import require_reply
from lemming.turn.recollection import recap_message

if TYPE_CHECKING:
    from lemming.turn.draft import Draft


def sum_up(draft: Draft) -> None:
    """Ask for the summary of what the prompt leaves out, keep it, and show it; without one, go on."""
    recap, prompt = draft.inputs.recap, draft.inputs.prompt
    text = recap["before"]
    try:
        answer = draft.ask(recap["messages"], schema={})
        require_reply(answer.finish)
        if not (said := answer.text.strip()):
            raise ContractError("the answer is empty")
    except (OutOfCredits, ProviderError, ContractError) as error:
        draft.remarks.append(f"what was said before is not summed up: {error}"[:500])
    else:
        text = said[: 4 * recap["most"]]
        draft.stage_memory(recap["key"], {"through": recap["through"], "text": text}, answer.at)
    draft.beforehand = len(draft.answers)
    if text:
        draft.inputs = replace(draft.inputs, prompt=[*prompt[:-1], recap_message(text), prompt[-1]])
