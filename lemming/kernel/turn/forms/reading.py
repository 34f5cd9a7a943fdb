"""A model's answer in a reply form as the reply that it is. Pure.

Every form is read as leniently as can be told apart: the contract's four keys are valid everywhere, and an
action may stand in any of the shapes that models write calls in (`lemming.kernel.turn.forms.shapes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lemming.kernel.base.call_shapes import KEYS
from lemming.kernel.base.contract import ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import compact, nearest, to_line
from lemming.kernel.base.reply_json import drop_thinking
from lemming.kernel.base.reply_object import object_in, require_size
from lemming.kernel.mail.answers import with_answer_apart
from lemming.kernel.turn.forms.first_messages import SILENCE
from lemming.kernel.turn.forms.own_actions import TO_ALL
from lemming.kernel.turn.forms.reply_form import ANSWER, DONE, REMEMBER, SEND, ReplyForm
from lemming.kernel.turn.forms.shapes import first_object, read_calls
from lemming.kernel.turn.values import Answer

Json = dict[str, Any]
_BEGINNINGS = ("{", "[", "```")
_CONTRACT = '{"outbox_entries":'
"""How a reply of four keys mostly begins: it is not read twice."""


class Parse(Protocol):
    """Reads the contract's four keys; raises `ContractError`."""

    def __call__(self, text: str, *, has_calls: bool = False) -> TurnReply:
        """Return the reply that a text is; `has_calls`: sound calls stand beside it."""
        ...


class _Step(NamedTuple):
    """An action of a reply: its name and arguments, the id that the backend gave the call, the real tool."""

    name: str
    arguments: Any
    call: str = ""
    tool: str = ""


def read_form(
    form: ReplyForm,
    answer: Answer,
    tools: Iterable[str],
    native: Mapping[str, str],
    parse: Parse,
    *,
    has_written: bool = False,
) -> TurnReply:
    """Return the reply that an answer is in its form; raise `ContractError` for what is none.

    `tools`: the names of the tools that are offered; `native`: their real names by those of the backend.
    `has_written`: the turn has written an entry already, so that a plain text is no message but a note.
    """
    if answer.text.startswith(_CONTRACT) and not answer.calls:
        return parse(answer.text)
    require_size(answer.text)
    text = drop_thinking(answer.text.strip())
    if not answer.calls and _is_contract(form, text):
        return parse(text)
    if answer.calls:
        return _to_reply(
            form,
            [
                _Step(it["tool"], it["args"], it["id"], native.get(it["tool"], it["tool"]))
                for it in answer.calls
            ],
            text,
            parse,
        )
    is_cut_off = answer.finish == "length"
    if form.style == "fields" and (fields := first_object(text, is_cut_off=is_cut_off)) is not None:
        return _to_reply(form, [_as_step_of_fields(form, fields)], "", parse)
    if form.style != "fields":
        calls, rest = read_calls(text, [*form.own, *tools], is_cut_off=is_cut_off)
        # A text may tell of calls, or be the JSON that was asked for, where there is nothing to call.
        is_told = form.style == "text" and not any(call.name in (ANSWER, SEND, *form.own) for call in calls)
        if calls and not is_told:
            return _to_reply(
                form,
                [_Step(call.name, call.args, tool=form.tool_name(call.name)) for call in calls],
                rest,
                parse,
            )
    return _to_reply(form, *_read_text(form, text, has_written=has_written, is_cut_off=is_cut_off), parse)


def _is_contract(form: ReplyForm, text: str) -> bool:
    """Return True if a text is a reply of the contract's four keys, and no answer with fields of these names.

    A `notes` beside other keys is content: forms, tools and people have fields of that name.
    """
    try:
        keys = object_in(text, []).keys()
    except ContractError:
        return False
    found = (keys & KEYS) - form.fields.keys()
    return "do" not in keys and bool(found - {"notes"} or (found and keys <= KEYS))


def _as_step_of_fields(form: ReplyForm, fields: Json) -> _Step:
    """Return the fields of a form as the action that they are; it may be wrapped as one."""
    name = form.own[0]
    if any(fields.get(key) == name and key not in form.fields for key in ("do", "name")):
        inner = fields.get("arguments", {key: fields[key] for key in fields if key not in ("do", "name")})
        fields = inner if isinstance(inner, dict) else fields
    return _Step(name, fields)


def _read_text(form: ReplyForm, text: str, *, has_written: bool, is_cut_off: bool) -> tuple[list[_Step], str]:
    """Return what a plain text does: it is the answer, or a message, or a note."""
    if not text:
        raise ContractError("the reply is empty")
    if is_cut_off and text.startswith(_BEGINNINGS):
        raise ContractError("the reply ends in the middle of its JSON")
    if form.fields:
        raise ContractError(f"the reply must be a JSON object with the fields {', '.join(form.fields)}")
    if form.style == "actions" and text.startswith(_BEGINNINGS):
        raise ContractError("the reply must be one action as JSON")
    if form.is_answer:
        return [_Step(ANSWER, {"text": text})], ""
    if form.style == "native" and (has_written or text.strip(" .!\"'").lower() == SILENCE):
        return [], text
    if form.style == "actions":
        raise ContractError("the reply must be one action as JSON")
    if len(form.requests) > 1:
        raise ContractError("answer: name the request that the text answers")
    # Where one agent waits for an answer, a text is for it, and not for everybody.
    return [_Step(ANSWER if len(form.requests) == 1 else SEND, {"text": text})], ""


def _to_reply(form: ReplyForm, steps: Sequence[_Step], rest: str, parse: Parse) -> TurnReply:
    """Return the reply of some actions, its entries and memories held against the contract."""
    entries: list[Json] = []
    updates: list[Json] = []
    calls: list[ToolCall] = []
    for step in steps:
        if step.name == DONE:
            continue
        # Who is asked nothing sends, and who cannot send answers: models take one word for the other.
        if step.name in (ANSWER, SEND) and _is_answer(form, step.name):
            entries.append({"kind": "response", "payload": _answer_of(form, _object(step))})
        elif step.name in (ANSWER, SEND):
            entries.append(_message_of(form, _object(step)))
        elif step.name == REMEMBER and REMEMBER in form.own:
            # A memory is an optional part: what is no object has no key, and is left out beside other parts.
            arguments = step.arguments if isinstance(step.arguments, dict) else {}
            updates.append({key: arguments[key] for key in ("key", "value") if key in arguments})
        else:
            calls.append(ToolCall(step.tool or step.name, step.arguments, step.call))
    plain = {"outbox_entries": entries, "memory_updates": updates, "notes": rest}
    reply = parse(compact(plain).decode(), has_calls=bool(calls))
    is_whole = any(step.name in (ANSWER, DONE) for step in steps) or not (entries or updates)
    goes_on = not calls and not is_whole and (form.is_answer or not entries)
    left_out = tuple(_name_action(form, words) for words in reply.left_out)
    return reply._replace(tool_calls=(*calls, *reply.tool_calls), left_out=left_out, goes_on=goes_on)


def _name_action(form: ReplyForm, words: str) -> str:
    """Return what is said of a part that was left out, with its action: the model does not know the keys."""
    for key, action in (("memory_updates", REMEMBER), ("outbox_entries", ANSWER if form.is_answer else SEND)):
        if words.startswith(key):
            return f"{action}{words.removeprefix(key)}".replace(": payload.", ": ", 1)
    return words


def _object(step: _Step) -> Json:
    """Return the arguments of an action; an only text stands for the object that has it."""
    if isinstance(step.arguments, dict):
        return step.arguments
    if isinstance(step.arguments, str) and step.name in (ANSWER, SEND):
        return {"text": step.arguments}
    raise ContractError(f"{step.name}: its arguments must be an object, got {type(step.arguments).__name__}")


def _is_answer(form: ReplyForm, name: str) -> bool:
    """Return True if an action of this name answers what is asked in the turn."""
    answers = form.is_answer or bool(form.requests)
    return answers and (name == ANSWER or SEND not in form.own)


def _answer_of(form: ReplyForm, arguments: Json) -> Json:
    """Return the payload of an answer; `request` is the id of what it answers."""
    if form.requests:  # a form with a field of this name is asked for by the contract
        _require_request(form.requests, arguments.get("request"))
    places = {"request", "to"} - form.fields.keys()
    fields = {key: value for key, value in arguments.items() if key not in places}
    payload = with_answer_apart(fields, {"properties": form.fields})
    is_named = "request" in places and "request" in arguments
    return {"reply_to": arguments["request"], **payload} if is_named else payload


def _require_request(requests: Sequence[str], named: Any) -> None:
    """Raise `ContractError` for an answer to a request that is none: nobody would be told of it."""
    names = named if isinstance(named, list) else [named]
    unknown = next((str(name)[:100] for name in names if name not in requests), None)
    if unknown is None or (named is None and len(requests) == 1):
        return
    hint = nearest(unknown, requests)
    listed = f"one of {', '.join(requests)}"
    raise ContractError(f'answer: "request" must be {listed}, got "{unknown}"{f" ({hint})" if hint else ""}')


def _message_of(form: ReplyForm, arguments: Json) -> Json:
    """Return the entry of a message; raise `ContractError` for a reader who cannot be reached."""
    payload = {key: value for key, value in arguments.items() if key not in ("to", "kind")}
    if "text" not in payload and len(payload) == 1 and not form.fields:
        payload = {"text": next(iter(payload.values()))}
    kind = arguments.get("kind", form.kind)
    kind = kind if kind in form.kinds else form.kind
    to = arguments.get("to") or form.to
    if not all(isinstance(name, str) for name in (to if isinstance(to, list) else [to])):
        # An address that cannot be read would be none, and the message for everybody.
        raise ContractError(f'send: "to" must be the name of an agent, got {to_line(to)[:100]}')
    if form.readers and to != form.to:
        known = {name.lower(): name for name in form.readers}
        names = to if isinstance(to, list) else [to]
        unknown = [name for name in names if str(name).strip().lower() not in known]
        if unknown:
            hint = nearest(str(unknown[0]), form.readers)
            listed = f"one of {', '.join(form.readers)}"
            raise ContractError(
                f'send: "to" must be {listed}, got "{str(unknown[0])[:100]}"{f" ({hint})" if hint else ""}'
            )
        found = [known[str(name).strip().lower()] for name in names]
        to = "" if TO_ALL in found else found if len(found) > 1 else found[0]
    return {
        "kind": "message" if kind == "response" else kind,
        "payload": {**payload, **({"target": to} if to else {})},
    }
