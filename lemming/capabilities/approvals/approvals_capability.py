"""Approvals as a capability of the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.approvals.read_decisions import (
    apply_decision,
    collect_decided_calls,
    find_preapprovals,
    list_denials,
    parse_preapproval,
    refresh_sub_requests,
)
from lemming.capabilities.gates.gate_format import Gate, GateRule
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.capabilities.gates.spending_limit import AMOUNTS
from lemming.capabilities.requests.request_resolver import load_entry
from lemming.ext import (
    Allowed,
    AskPerson,
    CallNote,
    CallTool,
    Capability,
    CheckSubject,
    Deferred,
    DescribeQuery,
    Effect,
    Interception,
    Outcome,
    Preparation,
    Problem,
    ReceiveEntry,
    Rejected,
    RunTool,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    StateQuery,
    TurnSubject,
    TurnView,
    Wake,
)
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import is_equal_json
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import SHOW, SubRequest, iter_person_requests
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import asks_persons
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tools import get_toolset
from lemming.obligations.decisions import parse_decision, references_entry
from lemming.obligations.pending_actions import PendingAction

MAX_STORED_DENIALS = 256
"""Maximum number of denied calls that are remembered, the latest."""
MAX_REVIEW_REQUESTS = 16
"""Approximate maximum of new requests in a turn; the next turn asks about the rest."""


class ApprovalsCapability(Capability):
    """Approvals for gates that say "ask"."""

    name = DECISION_RULES
    can_begin = True
    describes = (CallNote,)
    handles = (ReceiveEntry, AskPerson, ShowEntry, ShowEarlierResult, SelectContext)

    def due(self, turn: Preparation) -> Iterator[Wake]:
        """Yield a reason for a turn: a person must be asked about a new entry."""
        approvals = turn.get_cache(PreparedApprovals)
        if approvals.reviews_entries:
            yield Wake(approvals.has_new_requests)

    def prepare(self, turn: Preparation) -> Json:
        """Return the persons to ask by gate, the decisions and the preapprovals."""
        return turn.get_cache(PreparedApprovals).to_snapshot()

    def intercept(self, effect: Any, turn: Preparation | TurnView) -> Interception:
        """Answer for a person who has approved, or ask. The kernel asks about a call once it is live."""
        if isinstance(turn, Preparation):
            return turn.get_cache(PreparedApprovals).intercept(effect)
        if isinstance(effect.subject, CallTool):
            return None
        from lemming.capabilities.approvals.approval_questions import CallApprovals, EntryApprovals

        if isinstance(effect.subject, RunTool):
            return turn.live.get_cache(CallApprovals).decide(effect, effect.subject)
        return turn.get_cache(EntryApprovals).decide(effect)

    def describe(self, query: DescribeQuery) -> Iterator[CallNote]:
        """Yield the note about the approval of a call."""
        assert isinstance(query, StateQuery), "CallNote is asked with a StateQuery"
        by, entry = query.state["by"], query.state["entry"]
        yield CallNote(f"approved by {by}: {entry}", by, entry)


class PreparedApprovals:
    """Decisions, new questions and withheld entries of one turn.

    A gate at "in" that says "ask" withholds an entry until a person's approval. Nobody is asked twice about an entry; the
    decision stays in the agent's ledger as long as the entry exists.
    """

    def __init__(self, turn: Preparation) -> None:
        self._turn, self._tick_context, state = turn, turn.context.tick_context, turn.state
        mail, config = self._tick_context.mail, self._tick_context.config
        rules = rules_for_agent(turn.agent, config.org)
        self._asking_rules = [rule for rule in rules if rule.gate.then == "ask"]
        self._may_be_asked = asks_persons(turn.agent, config)  # by a capability, about anything
        self.reviews_entries = self._may_be_asked or any(rule.gate.at in ("in", "spend") for rule in self._asking_rules)
        """True if a gate asks about entries or spending, or a plugin's capability may ask."""
        self._sub_requests: Sequence[SubRequest] = [*iter_person_requests(turn.context.state.kept)]
        if self.reviews_entries:
            self._sub_requests = refresh_sub_requests(mail, turn.agent, self._sub_requests)
        self._entry_decisions: dict[str, str] = {}
        for sub_request in self._sub_requests if self.reviews_entries else ():
            if sub_request.held[DECISION_RULES]["tool"] == SHOW:
                entry = sub_request.held[DECISION_RULES]["args"]["entry"]
                self._entry_decisions[entry] = sub_request.end or self._entry_decisions.get(entry, "")
        self._new_requests: dict[str, Json] = {}
        # A denial is forgotten with its request: for another request the person is asked again.
        open_requests = {item.request for item in turn.context.state.requests}
        self._denied: list[Json] = [item for item in state.get("denied", ()) if item["request"] in open_requests]
        self._decided: Json = {}

    def has_new_requests(self) -> bool:
        """Return True if a person must be asked about a new entry."""
        return any(self._new_requests.values())

    def intercept(self, effect: Effect) -> Interception:
        """Pass entries that a person approved, ask about others, and show decisions about earlier calls."""
        match effect:
            case ReceiveEntry(entry=entry) | ShowEntry(entry=entry) if self._is_approved(entry):
                return (yield replace(effect, is_approved=True))
            case ReceiveEntry(entry=entry):
                return self._review(entry)
            case AskPerson(subject=ReceiveEntry(entry=entry)):
                return self._ask(effect, entry)
            case ShowEarlierResult() if effect.outcomes:
                return (yield replace(effect, result=apply_decision(effect.result, effect.outcomes)))
            case SelectContext(task=task) if task is not None:
                self._denied = [*self._denied, *list_denials(task)][-MAX_STORED_DENIALS:]
                self._decided, pending_indexes = collect_decided_calls(
                    task, effect.results, self._turn.model.prompt or "", self._turn.at
                )
                return (yield replace(effect, pending_indexes=pending_indexes))
        return None

    def _is_approved(self, entry: OutboxEntry) -> bool:
        return self._entry_decisions.get(entry.identity) == "approved"

    def _review(self, entry: OutboxEntry) -> Outcome | None:
        """Return the outcome of receiving an entry that a person was asked about earlier, else None."""
        match self._entry_decisions.get(entry.identity):
            case "denied":
                return Rejected("a person rejected the entry")
            case "":
                return Deferred("a person must approve the entry first")
        return None

    def _ask(self, question: AskPerson, entry: OutboxEntry) -> Outcome:
        """Return the outcome of a gate's question about an entry: allowed, rejected, or deferred with a new request."""
        if self._is_approved(entry):
            return Allowed(question)
        # Without room for a request the entry stays withheld until the next turn asks.
        if entry.identity not in self._new_requests and len(self._new_requests) < MAX_REVIEW_REQUESTS:
            # Without the entry's text, because others may read the request.
            args, identity = {"entry": entry.identity}, f"{self._turn.tick}/{self._turn.agent.name}/{entry.identity}"
            action = PendingAction(id=identity, tool=SHOW, args=args, gate=question.asked_by, reason=question.reason)
            people = self._find_approvers(question.persons)
            request = action.build_request(people, question.expires, self._turn.at) if people else {}
            self._new_requests[entry.identity] = request
        return Deferred("a person must approve the entry first")

    def _find_approvers(self, names: Collection[str] | None) -> list[str]:
        mail = self._tick_context.mail
        return find_approvers(mail.persons, mail.resumes, self._turn.agent.name, names)

    def to_snapshot(self) -> Json:
        """Return the persons to ask by gate, the decisions, the preapprovals, and the requests about entries.

        `only`: there is no other reason for the turn.
        """
        rules = self._asking_rules
        output_rules = [rule for rule in rules if rule.gate.at == "out"]
        askable = {rule.line: self._find_approvers(rule.gate.persons or None) for rule in output_rules}
        askable |= {"": self._find_approvers(None)} if self._may_be_asked else {}
        preapprovals: list[Json] = []
        used = earlier_used = [*self._turn.state.get("used", ())]
        if used or self._may_be_asked or any(rule.gate.at == "call" for rule in rules):
            preapprovals, used = find_preapprovals(self._tick_context.mail, self._turn.agent, earlier_used)
        sub_requests = [item.as_json() for item in self._sub_requests]
        snapshot: Json = {"asked": sub_requests, "askable": askable, "numbered": bool(askable), "ahead": preapprovals}
        snapshot |= {"used": used, "decided": self._decided, "denied": self._denied}
        if self.reviews_entries:
            snapshot["new"] = [*filter(None, self._new_requests.values())]
            limits = [rule for rule in rules if rule.gate.at == "spend"]
            snapshot["spend"] = {rule.line: self._spending_request(rule.gate) for rule in limits}
            snapshot["only"] = not self._turn.has_news
        return {"at": self._tick_context.at, **{key: value for key, value in snapshot.items() if value}}

    def _spending_request(self, gate: Gate) -> Json:
        """Return the persons to ask for a raise of a limit, and the raise: the same amount again."""
        raises = {key: amount for key in AMOUNTS if (amount := getattr(gate, key)) is not None}
        expires = {} if gate.expires is None else {"expires": gate.expires}
        return {"people": self._find_approvers(gate.persons or None), "more": raises, **expires}


def find_unapproved_calls(turn: TurnSubject) -> Iterator[Problem]:
    """Yield the reasons a turn's approved calls may not run."""
    inputs, tick_context = turn
    snapshot = inputs.given.get(DECISION_RULES, {})
    calls, preapprovals = snapshot.get("decided", {}).get("calls", ()), snapshot.get("ahead", ())
    if not (calls or preapprovals):
        return
    name = inputs.agent.name
    # Checked against the ledger and the persons' outboxes: a journal alone could have been edited.
    open_requests = read_state(tick_context.org, name, before_tick=inputs.tick).requests
    sub_requests = [part for item in open_requests for part in item.asked if DECISION_RULES in part.held]
    for item in calls:
        if not any(_is_approved(item, sub_request, tick_context.mail) for sub_request in sub_requests):
            yield Problem(f"its journal says that {item['call']['id']} was approved, which nobody says now")
    for item in preapprovals:
        entry = load_entry(tick_context.mail, item["entry"])
        approved = parse_preapproval(entry, name) if entry else None
        recorded = {key: item[key] for key in ("tool", "args", "binds") if key in item}
        if not is_equal_json(approved, recorded) or item["by"] not in tick_context.mail.persons:
            yield Problem(f"its journal says that {item['entry']} approves a call, which it does not now")


def _is_approved(grant: Mapping[str, Any], sub_request: SubRequest, mail: MailView) -> bool:
    """Return True if a decision approves the sub-request and the call as recorded."""
    entry, request = load_entry(mail, grant["entry"]), load_entry(mail, sub_request.request)
    # The call of the ledger decides, not the one that the journal or the request shows.
    if entry is None or request is None or not is_equal_json(sub_request.held[DECISION_RULES], grant["call"]):
        return False
    decision = parse_decision(entry.payload)
    return (
        entry.agent == grant["by"] == sub_request.to
        and sub_request.to in mail.persons
        and entry.kind == "response"
        and references_entry(entry.payload.get("reply_to"), request)
        and decision is not None
        and decision.kind == "approve"
        and is_equal_json([decision.args, decision.binds], [grant.get("args"), grant.get("binds")])
    )


Agents = Mapping[str, Agent]


def find_approver_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems that prevent gates from asking anybody."""
    org, config, only = subject.org, subject.config, subject.only
    survey = survey_agents(org)
    people = sorted(survey.find_people(config))
    reported: set[str] = set()
    for name, agent in survey.agents.items():
        if only not in (None, name) or not config.has_model_turns(agent):
            continue
        rules = rules_for_agent(agent, config.org)
        if not any(rule.gate.then == "ask" for rule in rules):
            continue
        tools = [*get_toolset(config.org, org).allowed_tools(agent, config.org).values()]
        for rule in rules:
            concerns_any = any(rule.gate.concerns_tool(tool.name, tool.tool_class) for tool in tools)
            if rule.gate.then != "ask" or (rule.gate.at == "call" and not concerns_any):
                continue
            if not people and rule.line not in reported:
                file, _, pointer = rule.line.partition("#")
                message = "the gate asks for approval, and there is no person who can approve"
                hint = "create a person with `lemming agents new human --model human`, or let the gate block"
                yield Problem(message, file, pointer=pointer, hint=hint)
            reported.add(rule.line)
            yield from _missing_permissions(rule, agent, survey.agents, people)


def _missing_permissions(rule: GateRule, agent: Agent, agents: Agents, people: list[str]) -> Iterator[Problem]:
    """Yield the missing permissions if a gate can ask nobody for an agent."""
    named = [name for name in people if not rule.gate.persons or name in rule.gate.persons]
    if not named or find_approvers(people, agents, agent.name, rule.gate.persons or None):
        return
    for reader, author in ((named[0], agent.name), (agent.name, named[0])):
        if reader in agents and not agents[reader].may_read(author):
            yield Problem(
                f"{rule.line} asks for approval, and {reader} may not read {author}: the call is refused",
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes',
                code="LMG-301",
            )
