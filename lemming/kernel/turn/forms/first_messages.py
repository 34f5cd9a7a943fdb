"""First messages of a prompt: the stable part comes first, for caches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.providers import Message
from lemming.kernel.tools.toolset import TOOL_SEARCH
from lemming.kernel.turn.forms.form_choice import FormChoice
from lemming.kernel.turn.forms.reply_form import ANSWER, SEND, ReplyForm
from lemming.kernel.turn.forms.signatures import Action, describe_action, describe_fields, max_actions, sample_action
from lemming.kernel.turn.forms.turn_actions import TO_ALL

ONE_ACTION = 'Reply with one action as JSON: {"do": <action>, <argument>: <value>}'
SEVERAL_ACTIONS = 'Reply with one action as JSON, or with a list of several: [{"do": <action>, <argument>: <value>}]'
SAMPLES = "Reply with one of these as JSON, with your own values:"
REFUSAL = "Translate this letter.", "I cannot do that: no tool fits."
"""An example of a request that no tool fits, and its answer: without one small models take any tool."""
SEARCHED = "translate a letter"
"""Search in the example if tools are deferred: small models never search without one."""
SEND_NATIVELY = (
    "Send messages with the tool send, all of them at once. Reply with the word done when nothing is left to do."
)
SILENCE = "done"
"""The plain text by which a model says natively that it has nothing to say."""


def make_first_messages(agent: Agent, choice: FormChoice) -> list[Message]:
    """Return the first messages of a reply form: instructions, description of the form, examples."""
    parts = [_introduce(agent, choice.form), agent.instructions, "\n".join(_explain_form(choice))]
    system: Message = {"role": "system", "content": "\n\n".join(part for part in parts if part)}
    return [system, *_examples(agent, choice)]


def _introduce(agent: Agent, form: ReplyForm) -> str:
    """Return a sentence with the agent's name if the instructions do not contain the name."""
    if form.is_answer or form.is_small:
        return ""
    if agent.name.lower() in agent.instructions.lower():
        return ""
    says_more = agent.title and agent.title.lower() != agent.name.lower()
    return f"You are {agent.name}{f', {agent.title}' if says_more else ''}."


def _explain_form(choice: FormChoice) -> Iterator[str]:
    form, actions = choice.form, choice.actions
    if form.style == "fields":
        yield f"Reply with one line of JSON: {describe_fields(actions[0].properties)}."
    elif form.style == "native" and SEND in form.own:
        yield SEND_NATIVELY
    elif form.style == "actions":
        yield "Actions:"
        yield from map(describe_action, actions)
        if choice.schema is None:
            yield SAMPLES
            yield from (to_line(sample_action(action)) for action in actions)
        else:
            yield SEVERAL_ACTIONS if max_actions(choice.schema) > 1 else ONE_ACTION
        question, answer = REFUSAL
        if any(action.name == TOOL_SEARCH for action in actions):
            yield f"For example: {question} -> {to_line({'do': TOOL_SEARCH, 'query': SEARCHED})}"
        elif len(actions) > len(form.own) and _answers_by_text(actions):
            yield f"For example: {question} -> {to_line({'do': ANSWER, 'text': answer})}"


def _answers_by_text(actions: Iterable[Action]) -> bool:
    return any(action.name == ANSWER and [*action.properties] == ["text"] for action in actions)


def _examples(agent: Agent, choice: FormChoice) -> Iterator[Message]:
    for example in agent.examples:
        if reply := _example_reply(choice, example.output):
            yield {"role": "user", "content": example.input}
            yield {"role": "assistant", "content": reply}


def _example_reply(choice: FormChoice, text: str) -> str:
    """Return the example reply with a text, or an empty string if a reply has other fields."""
    if choice.form.style in ("text", "native"):
        return text
    text_action = next((action for action in choice.actions if action.name in (ANSWER, SEND)), None)
    if text_action is None or "text" not in text_action.properties:
        return ""
    if choice.form.style == "fields":
        return to_line({"text": text}) if [*text_action.properties] == ["text"] else ""
    defaults = {name: _default_value(name, schema) for name, schema in text_action.properties.items()}
    sample = {"do": text_action.name, **defaults, "text": text}
    return to_line(sample)


def _default_value(name: str, schema: Mapping[str, Any]) -> Any:
    """Return the default value of an example's argument: all readers, the first kind."""
    values = schema.get("enum", [""])
    return TO_ALL if TO_ALL in values and name == "to" else values[0]
