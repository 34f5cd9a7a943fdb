"""User message of a prompt: the news of a turn in the turn's reply form. Pure."""

from __future__ import annotations

from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.turn.forms.form_user_message import describe_user_message
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.prompt_input import Lines, PromptInput
from lemming.kernel.turn.turn_prompt import full_message, values_message


def make_user_message(prompt_input: PromptInput, form: ReplyForm | None, entry: ModelEntry) -> Lines:
    """Return the lines of the prompt's last message in the turn's reply form."""
    if form:
        return describe_user_message(prompt_input)
    return values_message(prompt_input) if entry.prompt == "values" else full_message(prompt_input)
