"""Context providers: capabilities read files before a turn begins, while nothing is recorded yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import EntryLister, EntryReader, RequestOutcomes, RequestPolicy
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.tools import Tool
from lemming.kernel.turn.guards import ContextCandidates, IsPreapproved
from lemming.kernel.turn.prompt_labels import PLAIN, PromptLabels
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_context import TurnContext, VisibleContext
from lemming.kernel.turn.turn_values import Purpose

if TYPE_CHECKING:
    from lemming.kernel.turn.prompt_input import PromptInput


class ContextProvider:
    """Provides one capability's part of a turn's inputs. The only part of a capability with access to files.

    Nothing has happened yet and nothing is recorded: after a crash the provider reads again.
    """

    def __init__(self, context: TurnContext) -> None:
        self.context = context

    def scan_files(self, memories: Memories) -> Mapping[str, str]:
        """Read the files that decide whether the agent takes a turn.

        Called first, also for agents without news.

        Returns the digests of the files by path: a changed file is news for an agent that wakes on changed
        inputs. On a `LemmingError` the turn fails.
        """
        return {}

    def should_skip_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request must wait although none of the sub-requests is open."""
        return False

    def should_continue_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request continues now despite open sub-requests."""
        return False

    def skip_reason(self) -> str:
        """Return a description of the agent's wait when there is no reason for a turn."""
        return ""

    def next_wake_tick(self, memories: Memories) -> int | None:
        """Return the first tick in which a request's wait can end, or None if no tick ends the wait."""
        return None

    def agenda(self, view: ReaderView, policy: TurnPolicy, request_policy: RequestPolicy) -> Agenda | None:
        """Return the agenda of the agent, or None. Only one capability has agendas.

        `holds`: the request policies of all capabilities in the turn.
        """
        return None

    def purpose(self, task: Task) -> Purpose | None:
        """Return the recorded purpose of the turn, or None.

        Provided by the capability that provides `agenda`.
        """
        return None

    def prompt_labels(self) -> PromptLabels:
        """Return the labels of prompt parts. The first capability with labels wins."""
        return PLAIN

    def should_withhold(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must not be shown yet; the entry stays unread."""
        return False

    def should_reject(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must never be shown."""
        return False

    def is_preapproved(self, entry: OutboxEntry) -> bool:
        """Return True if a person has approved this entry for gates with "ask"."""
        return False

    def should_wake(self, view: ReaderView, *, is_alone: bool) -> bool:
        """Return True if there is a reason to take a turn. `is_alone`: there is no other reason."""
        return False

    def request_outcomes(
        self, open_request: OpenRequest, read: EntryReader, entries_of: EntryLister, is_heard: Callable[[str], bool]
    ) -> RequestOutcomes:
        """Return the outcomes of sub-requests that store pending state of this capability
        (`inboxes.request_policy`).
        """
        return {}

    def render_earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: PromptLabels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls as the model sees them, in the same positions."""
        return results

    def filter_candidates(self, candidates: ContextCandidates, is_preapproved: IsPreapproved) -> ContextCandidates:
        """Return the candidates that the turn may show.

        `is_preapproved` tells whether a person has approved an entry.
        """
        return candidates

    def adjust_context(self, visible: VisibleContext) -> VisibleContext:
        """Return the adjusted visible context. Later providers receive the context that this one returns."""
        return visible

    def tools(self) -> Iterable[Tool]:
        """Return tools that exist for this agent's turns only; the interceptor's `handle_call` runs their
        calls.

        Called only after a change of the agent's resume, the settings or the tools, on which the tools
        depend.
        """
        return ()

    def prompt_sections(self) -> Sequence[str]:
        """Return prompt sections after the agent's instructions."""
        return ()

    def payload_schemas(self, task: Task | None, requests: Sequence[OutboxEntry]) -> Sequence[PayloadSchema]:
        """Return JSON schemas of the turn's entry payloads, for backends with constrained output.

        `task` and `requests` are the request of the turn, or the requests that an inbox turn shows.
        """
        return ()

    def annotate_prompt(self, prompt_input: PromptInput, visible: VisibleContext) -> None:
        """Annotate the prompt input in place, when all the parts are final."""

    def snapshot(self) -> Json:
        """Return the inputs snapshot of the interceptor, recorded as `given.<name>`, or {} to take no part.

        Called last. An interceptor gets all outside data from the snapshot or from the turn's answers.
        """
        return {}
