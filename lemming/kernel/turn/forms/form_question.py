"""Prompts in a turn's reply form: removal of actions, and corrections. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import dump_compact, to_line
from lemming.kernel.providers import Message
from lemming.kernel.turn.forms.reply_form import ANSWER, SEND, ReplyForm, to_offered_name
from lemming.kernel.turn.forms.signatures import drop_actions, list_actions, sample_value

Json = dict[str, Any]
PLAIN_REPLY = "Reply with your own text."
ANSWER_NOW = "Answer now, or call another tool."
ACT_NOW = "Take the next action, or end the turn."
"""Said after results: without these words a small model makes the same call again."""
JSON_REPLY = "Reply with one JSON object like this, with your own values:"


_PAYLOAD_PROBLEM = re.compile(r"/payload(?:/|: )(.*)", re.DOTALL)


class ReplyPrompt(NamedTuple):
    """A prompt for a model: the messages, and the schema of the reply, or None for the turn's own schema."""

    messages: list[Message]
    schema: Json | None = None


def narrow_prompt(
    form: ReplyForm,
    messages: list[Message],
    schema: Json | None,
    results: Sequence[Mapping[str, Any]],
    dropped: Sequence[str] = (),
) -> ReplyPrompt:
    """Return a prompt without tools that would repeat their result, and without the `dropped` engine actions.

    A small model calls any offered tool for ever, so a small model loses each called tool. Other models lose
    a tool after two equal results for equal arguments, or after an echo.
    """
    counts = Counter(dump_compact([item["tool"], item["args"], item["output"]]) for item in results)
    min_count = 1 if form.is_small else 2
    tools = {
        to_offered_name(item["tool"])
        for item in results
        if counts[dump_compact([item["tool"], item["args"], item["output"]])] >= min_count
    }
    tools |= {to_offered_name(tool) for tool in _find_echoes(results)}
    if not (tools or dropped):
        return ReplyPrompt(messages)
    if form.style == "native":
        return ReplyPrompt(_without_tools(messages, tools, dropped))
    return ReplyPrompt(messages, drop_actions(schema, [*tools, *dropped]) if schema else None)


def _find_echoes(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield tools that received their own last result and returned the same text: models repeat such calls
    for ever.
    """
    last_outputs: dict[str, str] = {}
    for result in results:
        tool, args, output = result["tool"], result["args"], result["output"]
        texts = [value for value in args.values() if isinstance(value, str) and value] if isinstance(args, dict) else []
        if any(text == last_outputs.get(tool) and text in output for text in texts):
            yield tool
        last_outputs[tool] = output


def _without_tools(messages: list[Message], names: Iterable[str], engine_actions: Sequence[str]) -> list[Message]:
    """Return messages without some tools of the backend; unchanged if no tool would be left.

    `engine_actions`: engine actions to remove as well.
    """
    tools = [
        tool
        for tool in messages[0].get("tools", ())
        if tool["name"] not in engine_actions and to_offered_name(tool.get("tool", tool["name"])) not in names
    ]
    return [{**messages[0], "tools": tools}, *messages[1:]] if tools else messages


def correct_prompt(form: ReplyForm, prompt: ReplyPrompt, schema: Json | None, reply: str, problem: str) -> ReplyPrompt:
    """Return the corrected prompt after an unreadable reply.

    The broken `reply` is not shown, because the model would copy the broken form. The smallest valid reply is
    shown, and the schema leaves only the intended action.
    """
    reason = _describe_problem(form, problem)
    if form.style == "text":
        return ReplyPrompt(_append_text(prompt.messages, f"{reason}{PLAIN_REPLY}"))
    tool_name = problem.partition(":")[0]  # by a backend's own call, which stands in no text
    if form.style == "native" and not (form.fields or tool_name in form.own):
        return ReplyPrompt(_append_text(prompt.messages, f"{problem}. {PLAIN_REPLY}"), prompt.schema)
    grammar = prompt.schema or schema
    actions = {action["properties"]["do"]["const"]: action for action in list_actions(grammar or {})}
    intended = tool_name if tool_name in form.own else _find_intended_action(form, reply, actions)
    is_tool = intended in actions and intended not in form.own
    sample = sample_value(intended, actions[intended]) if is_tool else _smallest_reply(form, intended)
    if form.style == "actions":
        grammar = actions.get(intended, grammar)
    instruction = f"{reason}{JSON_REPLY}\n{to_line(sample)}"
    if form.style == "native":
        instruction = f"{problem}. Call {intended} with values like these: {to_line(sample)}"
    return ReplyPrompt(_append_text(prompt.messages, instruction), grammar)


def _describe_problem(form: ReplyForm, problem: str) -> str:
    """Return the problem with a value if more helpful than a sample; a small model would copy the text."""
    match = _PAYLOAD_PROBLEM.search(problem)
    is_helpful = (match or problem.partition(":")[0] in form.own) and not form.is_small
    return f"{(match[1] if match else problem).rstrip('.')}. " if is_helpful else ""


def _find_intended_action(form: ReplyForm, reply: str, actions: Iterable[str]) -> str:
    """Return the action named in a broken reply, else the action that sends text."""
    text_action = ANSWER if form.is_answer else SEND if SEND in form.own else form.own[0] if form.own else ANSWER
    return next((name for name in (*form.own, *actions) if f'"{name}"' in reply), text_action)


def _smallest_reply(form: ReplyForm, name: str) -> Json:
    """Return the smallest valid reply with an action."""
    if name not in (ANSWER, SEND):
        values: Json = {"key": "name", "value": "your value"} if name == "remember" else {}
    elif form.fields:
        values = {key: sample_value(key, schema) for key, schema in form.fields.items()}
    else:
        values = {"text": "your text"}
    if name == ANSWER and form.requests:
        values = {"request": form.requests[0], **values}
    if name == SEND and form.readers:
        values = {"to": form.readers[0], **values}
    if name == SEND and form.kinds:
        values = {"kind": form.kinds[0], **values}
    return values if form.style in ("fields", "native") else {"do": name, **values}


def _append_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Return messages with `text` appended to the last message, which is the user's."""
    *earlier, last = messages
    if last["role"] != "user":
        return [*messages, {"role": "user", "content": text}]
    return [*earlier, {**last, "content": f"{last['content']}\n{text}"}]


def render_action_results(
    form: ReplyForm, results: Sequence[str], notices: Sequence[str], *, has_own: bool = True
) -> list[Message]:
    """Return the messages with the results of the last actions and a request for the next action.

    `has_own`: the calls were the backend's own and have results of their own; otherwise the prompt must end
    with a request. Notices stand in separate messages, because small models copy the content of results.
    """
    instruction = ANSWER_NOW if form.is_answer else ACT_NOW
    lines = [*results, instruction] if form.style != "native" or not has_own else [*results]
    rendered: list[Message] = [{"role": "user", "content": "\n".join(lines)}] if lines else []
    return [*rendered, *({"role": "user", "content": notice} for notice in notices)]
