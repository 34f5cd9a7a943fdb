"""The user message of a prompt: what is new in a turn, as the turn's form has it. Pure."""

from __future__ import annotations

from lemming.kernel.org.models import ModelEntry
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.forms.situation import describe_situation
from lemming.kernel.turn.prompt import full_situation, values_situation
from lemming.kernel.turn.seen import Lines, Seen


def make_situation(seen: Seen, form: ReplyForm | None, entry: ModelEntry) -> Lines:
    """Return the lines of the prompt's last message, as the turn's form has them."""
    if form:
        return describe_situation(seen)
    return values_situation(seen) if entry.prompt == "values" else full_situation(seen)
