"""Parser of model answers in a reply form. Pure.

Every form is read leniently: the contract's four keys are valid everywhere, and an action may have any of the
call shapes that models write (`lemming.kernel.turn.forms.reply_shapes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lemming.kernel.base.contract import ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, to_line
from lemming.kernel.base.reply_json import CONTRACT_KEYS, drop_thinking, extract_object, require_size
from lemming.kernel.inboxes.answer_payload import nest_answer
from lemming.kernel.turn.forms.form_choice import SILENCE
from lemming.kernel.turn.forms.reply_form import ANSWER, DONE, REMEMBER, SEND, TO_ALL, ReplyForm
from lemming.kernel.turn.forms.reply_shapes import extract_calls, extract_only_object
from lemming.kernel.turn.turn_values import Answer

Json = dict[str, Any]
_JSON_PREFIXES = ("{", "[", "```")
_CONTRACT_PREFIX = '{"outbox_entries":'
"""Usual beginning of a reply with four keys, which is not parsed twice."""


class ContractParser(Protocol):
    """Parser of the contract's four keys. Raises `ContractError`."""

    def __call__(self, text: str, *, has_calls: bool = False) -> TurnReply:
        """Return the reply in a text. `has_calls`: valid calls accompany the text."""


class _Step(NamedTuple):
    """An action of a reply: name, arguments, the backend's call id, and the real tool."""

    name: str
    arguments: Any
    call: str = ""
    tool: str = ""


def parse_form_reply(
    form: ReplyForm,
    answer: Answer,
    tools: Iterable[str],
    native: Mapping[str, str],
    parse: ContractParser,
    *,
    has_written: bool = False,
) -> TurnReply:
    """Return the reply in an answer of this form. Raises `ContractError` for an invalid reply.

    `tools`: names of the offered tools. `native`: real names by backend names. `has_written`: the turn has
    written an entry already, so that plain text is a note rather than a message.
    """
    if answer.text.startswith(_CONTRACT_PREFIX) and not answer.calls:
        return parse(answer.text)
    require_size(answer.text)
    text = drop_thinking(answer.text.strip())
    if not answer.calls and _is_contract(form, text):
        return parse(text)
    if answer.calls:
        return _to_reply(
            form,
            [
                _Step(item["tool"], item["args"], item["id"], native.get(item["tool"], item["tool"]))
                for item in answer.calls
            ],
            text,
            parse,
        )
    is_cut_off = answer.finish == "length"
    if form.style == "fields" and (fields := extract_only_object(text, is_cut_off=is_cut_off)) is not None:
        name = form.own[0]
        if any(fields.get(key) == name and key not in form.fields for key in ("do", "name")):  # wrapped as an action
            inner = fields.get("arguments", {key: fields[key] for key in fields if key not in ("do", "name")})
            fields = inner if isinstance(inner, dict) else fields
        return _to_reply(form, [_Step(name, fields)], "", parse)
    if form.style != "fields":
        calls, other_text = extract_calls(text, [*form.own, *tools], is_cut_off=is_cut_off)
        # A text may tell of calls, or be the JSON that was asked for, where there is nothing to call.
        is_prose = form.style == "text" and not any(call.name in (ANSWER, SEND, *form.own) for call in calls)
        if calls and not is_prose:
            return _to_reply(
                form, [_Step(call.name, call.args, tool=form.tool_name(call.name)) for call in calls], other_text, parse
            )
    return _to_reply(form, *_read_text(form, text, has_written=has_written, is_cut_off=is_cut_off), parse)


def _is_contract(form: ReplyForm, text: str) -> bool:
    """Return True for a reply with the contract's four keys, rather than an answer with fields of these
    names.

    `notes` beside other keys is content: forms, tools and people have fields of this name.
    """
    try:
        keys = extract_object(text, []).keys()
    except ContractError:
        return False
    contract_keys = (keys & CONTRACT_KEYS) - form.fields.keys()
    return "do" not in keys and bool(contract_keys - {"notes"} or (contract_keys and keys <= CONTRACT_KEYS))


def _read_text(form: ReplyForm, text: str, *, has_written: bool, is_cut_off: bool) -> tuple[list[_Step], str]:
    """Return the action of a plain text: an answer, a message or a note."""
    if not text:
        raise ContractError("the reply is empty")
    if is_cut_off and text.startswith(_JSON_PREFIXES):
        raise ContractError("the reply ends in the middle of its JSON")
    if form.fields:
        raise ContractError(f"the reply must be a JSON object with the fields {', '.join(form.fields)}")
    if form.style == "actions" and text.startswith(_JSON_PREFIXES):
        raise ContractError("the reply must be one action as JSON")
    if form.is_answer:
        return [_Step(ANSWER, {"text": text})], ""
    if form.style == "native" and (has_written or text.strip(" .!\"'").lower() == SILENCE):
        return [], text
    if form.style == "actions":
        raise ContractError("the reply must be one action as JSON")
    if len(form.requests) > 1:
        raise ContractError("answer: name the request that the text answers")
    # While one agent waits for an answer, a text is for that agent, not for every reader.
    return [_Step(ANSWER if len(form.requests) == 1 else SEND, {"text": text})], ""


def _to_reply(form: ReplyForm, steps: Sequence[_Step], notes: str, parse: ContractParser) -> TurnReply:
    """Return the reply with some actions, after validation of entries and memories by the contract."""
    entries: list[Json] = []
    updates: list[Json] = []
    calls: list[ToolCall] = []
    has_request = form.is_answer or bool(form.requests)
    for step in steps:
        if step.name == DONE:
            continue
        # Without an open request "answer" means send, and without recipients "send" means answer: models mix the words.
        is_answer = has_request and (step.name == ANSWER or SEND not in form.own)
        if step.name in (ANSWER, SEND) and is_answer:
            entries.append({"kind": "response", "payload": _to_answer_payload(form, _to_arguments(step))})
        elif step.name in (ANSWER, SEND):
            entries.append(_to_message_entry(form, _to_arguments(step)))
        elif step.name == REMEMBER and REMEMBER in form.own:
            # A memory is optional: a value that is no object has no key, and is dropped beside other parts.
            arguments = step.arguments if isinstance(step.arguments, dict) else {}
            updates.append({key: arguments[key] for key in ("key", "value") if key in arguments})
        else:
            calls.append(ToolCall(step.tool or step.name, step.arguments, step.call))
    raw = {"outbox_entries": entries, "memory_updates": updates, "notes": notes}
    reply = parse(dump_compact(raw).decode(), has_calls=bool(calls))
    is_complete = any(step.name in (ANSWER, DONE) for step in steps) or not (entries or updates)
    goes_on = not calls and not is_complete and (form.is_answer or not entries)
    omissions = tuple(_name_action(form, remark) for remark in reply.left_out)
    return reply._replace(tool_calls=(*calls, *reply.tool_calls), left_out=omissions, goes_on=goes_on)


def _name_action(form: ReplyForm, remark: str) -> str:
    """Return a remark about an omitted part with the action's name: the model does not know the keys."""
    for key, action in (("memory_updates", REMEMBER), ("outbox_entries", ANSWER if form.is_answer else SEND)):
        if remark.startswith(key):
            return f"{action}{remark.removeprefix(key)}".replace(": payload.", ": ", 1)
    return remark


def _to_arguments(step: _Step) -> Json:
    """Return the arguments of an action. A bare text becomes the object with the text."""
    if isinstance(step.arguments, dict):
        return step.arguments
    if isinstance(step.arguments, str) and step.name in (ANSWER, SEND):
        return {"text": step.arguments}
    raise ContractError(f"{step.name}: its arguments must be an object, got {type(step.arguments).__name__}")


def _to_answer_payload(form: ReplyForm, arguments: Json) -> Json:
    """Return the payload of an answer. `request` is the id of the answered request."""
    if form.requests:  # a form with a field of this name is asked for by the contract
        _require_request(form.requests, arguments.get("request"))
    address_keys = {"request", "to"} - form.fields.keys()
    fields = {key: value for key, value in arguments.items() if key not in address_keys}
    payload = nest_answer(fields, {"properties": form.fields})
    is_named = "request" in address_keys and "request" in arguments
    return {"reply_to": arguments["request"], **payload} if is_named else payload


def _require_request(requests: Sequence[str], value: Any) -> None:
    """Raise `ContractError` for an answer to an unknown request, which would reach no asker."""
    names = value if isinstance(value, list) else [value]
    unknown = next((str(name)[:100] for name in names if name not in requests), None)
    if unknown is None or (value is None and len(requests) == 1):
        return
    hint = did_you_mean(unknown, requests)
    listed = f"one of {', '.join(requests)}"
    raise ContractError(f'answer: "request" must be {listed}, got "{unknown}"{f" ({hint})" if hint else ""}')


def _to_message_entry(form: ReplyForm, arguments: Json) -> Json:
    """Return the entry of a message. Raises `ContractError` for an unreachable reader."""
    payload = {key: value for key, value in arguments.items() if key not in ("to", "kind")}
    if "text" not in payload and len(payload) == 1 and not form.fields:
        payload = {"text": next(iter(payload.values()))}
    kind = arguments.get("kind", form.kind)
    kind = kind if kind in form.kinds else form.kind
    to = arguments.get("to") or form.to
    if not all(isinstance(name, str) for name in (to if isinstance(to, list) else [to])):
        # An unreadable address would count as none, and the message would go to every reader.
        raise ContractError(f'send: "to" must be the name of an agent, got {to_line(to)[:100]}')
    if form.readers and to != form.to:
        readers_by_lower = {name.lower(): name for name in form.readers}
        names = to if isinstance(to, list) else [to]
        unknown = [name for name in names if str(name).strip().lower() not in readers_by_lower]
        if unknown:
            hint = did_you_mean(str(unknown[0]), form.readers)
            listed = f"one of {', '.join(form.readers)}"
            raise ContractError(
                f'send: "to" must be {listed}, got "{str(unknown[0])[:100]}"{f" ({hint})" if hint else ""}'
            )
        targets = [readers_by_lower[str(name).strip().lower()] for name in names]
        to = "" if TO_ALL in targets else targets if len(targets) > 1 else targets[0]
    return {"kind": "message" if kind == "response" else kind, "payload": {**payload, **({"target": to} if to else {})}}
