"""A question of a turn in its reply form: what it may no longer do, and how it is corrected. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import compact, to_line
from lemming.kernel.providers import Message
from lemming.kernel.turn.forms.reply_form import ANSWER, SEND, ReplyForm, offered_name
from lemming.kernel.turn.forms.signatures import drop_actions, list_actions, sample_value

Json = dict[str, Any]
PLAIN_REPLY = "Reply with your own text."
ANSWER_NOW = "Answer now, or call another tool."
ACT_NOW = "Take the next action, or end the turn."
"""Said after results: without these words a small model makes the same call again."""
JSON_REPLY = "Reply with one JSON object like this, with your own values:"


_IN_PAYLOAD = re.compile(r"/payload(?:/|: )(.*)", re.DOTALL)


class Question(NamedTuple):
    """What a model is asked: the messages, and the schema of the reply; None: the turn's own."""

    messages: list[Message]
    schema: Json | None = None


def narrow_question(
    form: ReplyForm,
    messages: list[Message],
    schema: Json | None,
    results: Sequence[Mapping[str, Any]],
    dropped: Sequence[str] = (),
) -> Question:
    """Return a question without the tools that would give the same again, and some of the engine's actions.

    A small model calls a tool for ever that it is told of: it loses each that it has called. Any other loses
    one that has given the same twice for the same arguments, or that echoes.
    """
    counts = Counter(compact([it["tool"], it["args"], it["output"]]) for it in results)
    least = 1 if form.is_small else 2
    tools = {
        offered_name(it["tool"])
        for it in results
        if counts[compact([it["tool"], it["args"], it["output"]])] >= least
    }
    tools |= {offered_name(tool) for tool in _find_echoes(results)}
    if not (tools or dropped):
        return Question(messages)
    if form.style == "native":
        return Question(_without_tools(messages, tools, dropped))
    return Question(messages, drop_actions(schema, [*tools, *dropped]) if schema else None)


def _find_echoes(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the tools that were given their own last result and gave it back: models go on so for ever."""
    last: dict[str, str] = {}
    for result in results:
        tool, args, output = result["tool"], result["args"], result["output"]
        texts = [it for it in args.values() if isinstance(it, str) and it] if isinstance(args, dict) else []
        if any(text == last.get(tool) and text in output for text in texts):
            yield tool
        last[tool] = output


def _without_tools(messages: list[Message], names: Iterable[str], own: Sequence[str]) -> list[Message]:
    """Return messages without some tools of the backend's own; the same where it would have none.

    `own`: the actions of the engine that are left out too.
    """
    tools = [
        it
        for it in messages[0].get("tools", ())
        if it["name"] not in own and offered_name(it.get("tool", it["name"])) not in names
    ]
    return [{**messages[0], "tools": tools}, *messages[1:]] if tools else messages


def correct_question(
    form: ReplyForm, question: Question, schema: Json | None, reply: str, problem: str
) -> Question:
    """Return the question that is asked again after a reply that cannot be read.

    The broken reply is not shown: it would be one more sample. The smallest valid reply is, and a grammar
    leaves nothing but the action that was meant. `reply` is the broken one.
    """
    reason = _reason_of(form, problem)
    if form.style == "text":
        return Question(_with_words(question.messages, f"{reason}{PLAIN_REPLY}"))
    called = problem.partition(":")[0]  # by a backend's own call, which stands in no text
    if form.style == "native" and not (form.fields or called in form.own):
        return Question(_with_words(question.messages, f"{problem}. {PLAIN_REPLY}"), question.schema)
    grammar = question.schema or schema
    actions = {one["properties"]["do"]["const"]: one for one in list_actions(grammar or {})}
    meant = called if called in form.own else _find_meant(form, reply, actions)
    is_tool = meant in actions and meant not in form.own
    sample = sample_value(meant, actions[meant]) if is_tool else _smallest_reply(form, meant)
    if form.style == "actions":
        grammar = actions.get(meant, grammar)
    words = f"{reason}{JSON_REPLY}\n{to_line(sample)}"
    if form.style == "native":
        words = f"{problem}. Call {meant} with values like these: {to_line(sample)}"
    return Question(_with_words(question.messages, words), grammar)


def _reason_of(form: ReplyForm, problem: str) -> str:
    """Return what was wrong with a value, where that says more than a sample; a small model copies it."""
    match = _IN_PAYLOAD.search(problem)
    is_told = (match or problem.partition(":")[0] in form.own) and not form.is_small
    return f"{(match[1] if match else problem).rstrip('.')}. " if is_told else ""


def _find_meant(form: ReplyForm, reply: str, actions: Iterable[str]) -> str:
    """Return the action that a broken reply names, else the one that says something."""
    says = ANSWER if form.is_answer else SEND if SEND in form.own else form.own[0] if form.own else ANSWER
    return next((name for name in (*form.own, *actions) if f'"{name}"' in reply), says)


def _smallest_reply(form: ReplyForm, name: str) -> Json:
    """Return the smallest valid reply that takes an action."""
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


def _with_words(messages: Sequence[Message], words: str) -> list[Message]:
    """Return messages whose last one, the user's, ends with these words."""
    *before, last = messages
    if last["role"] != "user":
        return [*messages, {"role": "user", "content": words}]
    return [*before, {**last, "content": f"{last['content']}\n{words}"}]


def show_results(
    form: ReplyForm, results: Sequence[str], notices: Sequence[str], *, has_own: bool = True
) -> list[Message]:
    """Return the messages that show what the last actions gave, and ask for the next one.

    `has_own`: a backend's own calls have theirs. After what it writes as text, it would be asked nothing.

    What the engine says itself stands in a message of its own: small models copy what stands in a result.
    """
    go_on = ANSWER_NOW if form.is_answer else ACT_NOW
    lines = [*results, go_on] if form.style != "native" or not has_own else [*results]
    shown: list[Message] = [{"role": "user", "content": "\n".join(lines)}] if lines else []
    return [*shown, *({"role": "user", "content": notice} for notice in notices)]
