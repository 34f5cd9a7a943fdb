"""Choice of a turn's reply form, the simplest that can express its actions, and the first messages. Pure.

If no form suffices, for example for an answer schema without a closed object, the model gets the whole
contract (`lemming.kernel.turn.turn_prompt`). In the messages the stable part comes first, for caches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.providers import Message
from lemming.kernel.tools import Tool
from lemming.kernel.tools.listing import describe_tool
from lemming.kernel.tools.toolset import TOOL_SEARCH
from lemming.kernel.turn.forms import reply_form
from lemming.kernel.turn.reply_schemas import (
    BRIEF_CHARS,
    BRIEF_ITEMS,
    Action,
    Json,
    PayloadSchema,
    actions_schema,
    closed_object,
    describe_action,
    describe_fields,
    limit_properties,
    max_actions,
    sample_action,
)

MAX_CHARS = 2000
"""A text under a grammar is no longer: without a bound a small model writes to the token limit."""
MAX_ACTIONS = 8
MAX_ITEMS = 64
CONTRACT_KEYS = re.compile(r"\b(?:outbox_entries|memory_updates|tool_calls|payload)\b")


FORM_PROMPTS = ("fit", "brief", "tools")
"""The values of `ModelEntry.prompt` that request the simplest form of a reply."""


class ModelFeatures(NamedTuple):
    """Features of a backend, and the prompt style for the model.

    `takes_schema`: constrained output by a schema. `calls_tools`: native tool calls. `context_tokens`:
    maximum length of prompt and answer together. `answers_by_text`: replies are plain texts, and nothing else is offered.
    """

    takes_schema: bool
    calls_tools: bool
    prompt: str
    context_tokens: int = 128_000
    answers_by_text: bool = False


class FormChoice(NamedTuple):
    """A reply form, the actions described to the model, and the schema of a reply, if sent."""

    form: reply_form.ReplyForm
    actions: Sequence[Action]
    schema: Json | None


def choose_form(
    agent: Agent,
    features: ModelFeatures,
    max_output_tokens: int,
    facts: reply_form.FormFacts,
    payload_schemas: Sequence[PayloadSchema],
    tools: Sequence[Tool],
) -> FormChoice | None:
    """Return the reply form of a turn, or None for the whole contract, as where instructions name its keys."""
    if CONTRACT_KEYS.search(agent.instructions):
        return None
    is_small, takes_schema = features.prompt == "brief", features.takes_schema
    chars = BRIEF_CHARS if is_small else min(MAX_CHARS, 2 * max_output_tokens)
    text = reply_form.text_schema(chars)
    try:
        engine_actions = reply_form.list_engine_actions(agent, facts, payload_schemas, text)
    except reply_form.Inexpressible:
        return None
    if features.answers_by_text:
        text_names, tools = (reply_form.ANSWER, reply_form.SEND), ()
        engine_actions = [action for action in engine_actions if action.name in text_names][:1]
        if not engine_actions or not _is_text(engine_actions[0]):
            return None
    listed = [
        _to_action(tool, is_small=is_small)
        for tool in tools
        if tool.name != reply_form.MEMORY_WRITE  # `remember` is offered instead
        and reply_form.is_described(tool.name, agent, needs_memory_read=facts.has_long_memories)
    ]
    style: reply_form.Style = "native" if features.calls_tools else "actions"
    schema: Json | None = None
    if features.answers_by_text or (not listed and _is_one_text(engine_actions, facts, is_small=is_small)):
        engine_actions = engine_actions[:1]
        style = "text" if _is_text(engine_actions[0]) and not (is_small and takes_schema) else "fields"
        if takes_schema and style == "fields":
            schema = closed_object(
                limit_properties(engine_actions[0].properties, chars, BRIEF_ITEMS if is_small else MAX_ITEMS)
            )
    elif features.calls_tools:  # plain text is the answer, and the end
        engine_actions = [
            action
            for action in engine_actions
            if action.name != reply_form.DONE and not (facts.asker and _is_text(action))
        ]
    elif takes_schema:
        max_actions = min(MAX_ACTIONS, agent.turn.max_entries) if facts.has_several and not is_small else 1
        schema = actions_schema([*listed, *engine_actions], max_actions)
    readers, kinds = reply_form.list_readers(facts), reply_form.list_send_kinds(agent)
    form = reply_form.ReplyForm(
        style=style,
        own=tuple(action.name for action in engine_actions),
        kind=kinds[0] if kinds else "response",
        kinds=kinds if len(kinds) > 1 else (),
        to=readers[0] if len(readers) == 1 else "",
        readers=readers if len(readers) > 1 else (),
        requests=() if facts.asker else facts.requests,
        is_answer=bool(facts.asker),
        fields=_get_text_fields(engine_actions, facts),
        renamed={
            reply_form.to_offered_name(tool.name): tool.name for tool in tools if tool.name in reply_form.ENGINE_ACTIONS
        },
        takes_schema=takes_schema,
        is_small=is_small,
    )
    return FormChoice(form, [*listed, *engine_actions], schema)


def _is_one_text(engine_actions: Sequence[Action], facts: reply_form.FormFacts, *, is_small: bool) -> bool:
    """Return True if a turn may give only a single text or the fields of a single payload schema.

    Agents without readers and small models are not offered the choice of writing nothing.
    """
    names = [action.name for action in engine_actions]
    if names == [reply_form.SEND, reply_form.DONE]:
        return (facts.readers == () or is_small) and engine_actions[0].properties.keys().isdisjoint(("to", "kind"))
    return names == [reply_form.ANSWER] and bool(facts.asker)


def _get_text_fields(actions: Sequence[Action], facts: reply_form.FormFacts) -> Mapping[str, Json]:
    """Return the fields of an answer, else of a message; empty for a plain text."""
    text_action = next((action for action in actions if action.name in (reply_form.ANSWER, reply_form.SEND)), None)
    if text_action is None:
        return reply_form.NO_FIELDS
    address_fields = ("to", "kind") if text_action.name == reply_form.SEND else () if facts.asker else ("request",)
    fields = {name: schema for name, schema in text_action.properties.items() if name not in address_fields}
    return reply_form.NO_FIELDS if [*fields] == ["text"] else fields


def _is_text(action: Action) -> bool:
    return action.name in (reply_form.ANSWER, reply_form.SEND) and [*action.properties] == ["text"]


def _to_action(tool: Tool, *, is_small: bool) -> Action:
    """Return a tool as an action. A small model would copy descriptions of arguments and gets none."""
    arguments = describe_tool(tool)["parameters"]
    if is_small:
        properties = {
            name: {key: schema[key] for key in schema if key != "description"}
            if isinstance(schema, Mapping)
            else schema
            for name, schema in arguments.get("properties", {}).items()
        }
        arguments = {**arguments, "properties": properties}
    return Action(reply_form.to_offered_name(tool.name), tool.description, arguments)


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
    messages = [system]
    for example in agent.examples:
        if reply := _example_reply(choice, example.output):
            messages += ({"role": "user", "content": example.input}, {"role": "assistant", "content": reply})
    return messages


def _introduce(agent: Agent, form: reply_form.ReplyForm) -> str:
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
    elif form.style == "native" and reply_form.SEND in form.own:
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
        elif len(actions) > len(form.own) and any(
            action.name == reply_form.ANSWER and _is_text(action) for action in actions
        ):
            yield f"For example: {question} -> {to_line({'do': reply_form.ANSWER, 'text': answer})}"


def _example_reply(choice: FormChoice, text: str) -> str:
    """Return the example reply with a text, or an empty string if a reply has other fields."""
    if choice.form.style in ("text", "native"):
        return text
    text_action = next(
        (action for action in choice.actions if action.name in (reply_form.ANSWER, reply_form.SEND)), None
    )
    if text_action is None or "text" not in text_action.properties:
        return ""
    if choice.form.style == "fields":
        return to_line({"text": text}) if [*text_action.properties] == ["text"] else ""
    listed = {name: schema.get("enum", [""]) for name, schema in text_action.properties.items()}
    defaults = {
        name: reply_form.TO_ALL if name == "to" and reply_form.TO_ALL in values else values[0]
        for name, values in listed.items()
    }
    return to_line({"do": text_action.name, **defaults, "text": text})
