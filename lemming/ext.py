"""Everything needed to write a capability. docs/capabilities.md builds one in ten minutes.

A capability is one class: it reads files in `prepare`, decides about effects in `intercept`, keeps state in `reduce`.
A name is loaded from the kernel when it is first used, so that a small capability loads little.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# fmt: off
# isort: off
_NAMES = {
    "lemming.kernel.base.contract": "NewEntry ToolCall TurnReply",
    "lemming.kernel.base.errors": "ConfigError ContractError LemmingError Problem",
    "lemming.kernel.base.paths": "resume_file",
    "lemming.kernel.base.problems": "make_warning",
    "lemming.kernel.files.file_effects": "FileEffect",
    "lemming.kernel.files.fast_decoder": "describe_field make_field",
    "lemming.kernel.journal.capability_queries": "CallNote StateQuery",
    "lemming.kernel.messages": "OutboxEntry",
    "lemming.kernel.org.capability_usage": "parse_agent_settings parse_org_settings",
    "lemming.kernel.org.model_entries": "ModelEntry",
    "lemming.kernel.plugins.capability_loader": "find_fact",
    "lemming.kernel.providers": "Reply",
    "lemming.libraries.capability_registration": "register_capability",
    "lemming.kernel.tick.tick_hooks": "find_first_reading",
    "lemming.kernel.tick.tick_counter": "load_tick",
    "lemming.kernel.obligations.grants": "list_grants",
    "lemming.kernel.tick.validation.checks": "AgentSubject CheckSubject Inventory TurnSubject",
    "lemming.kernel.turn.descriptions":
        "AuxiliaryPrompt ClockSchedule DescribeQuery ExpiredMemory OptionalReadPath OrgQuery OutsideFile OutsideRoot "
        "ReadPath ScheduleQuery SharedResource TickView ToolReference VERDICT_SCHEMA",
    "lemming.kernel.turn.effect_chain": "Interceptor",
    "lemming.kernel.turn.forms.form_user_message": "describe_task",
    "lemming.kernel.turn.live_phase": "CheckResult LivePhase RunTool SendRequest StartTool TickScope",
    "lemming.kernel.turn.preparation":
        "Block CapabilityStatus Continue Due Preparation RetentionHold RunTurn SkipReason TurnContext Wake Watch",
    "lemming.kernel.turn.preparation_effects":
        "BuildPrompt LabelPrompt ReceiveEntry SelectContext ShowEarlierResult ShowEntry ShowFile ShowMemory",
    "lemming.kernel.tools": "ToolResult",
    "lemming.kernel.turn.prompt_input": "PLAIN PromptInput PromptLabels",
    "lemming.kernel.tick_context": "TickContext",
    "lemming.kernel.turn.tool_results": "render_result",
    "lemming.kernel.turn.turn_effects":
        "Allowed AskModel AskPerson BindFiles CallTool CarriedOut CarryOut CheckEntries Deferred Effect EffectFinished "
        "EffectPerformed EffectStarted EndTurn Event Interception LiveEffect Outcome Rejected Replaced Seal ShowResult "
        "Suspended TakeReply TakeResult Withdraw WriteEntry WriteFile WriteMemory WriteNotes effect_content",
    "lemming.kernel.turn.turn_hooks": "Capability",
    "lemming.kernel.turn.turn_values": "Answer Steps TurnInputs",
    "lemming.kernel.turn.turn_view": "TurnView",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_MODULES]  # for `import *`

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from lemming.kernel.base.contract import NewEntry as NewEntry, ToolCall as ToolCall, TurnReply as TurnReply
    from lemming.kernel.base.errors import (
        ConfigError as ConfigError, ContractError as ContractError, LemmingError as LemmingError, Problem as Problem,
    )
    from lemming.kernel.base.paths import resume_file as resume_file
    from lemming.kernel.base.problems import make_warning as make_warning
    from lemming.kernel.files.file_effects import FileEffect as FileEffect
    from lemming.kernel.files.fast_decoder import describe_field as describe_field, make_field as make_field
    from lemming.kernel.journal.capability_queries import CallNote as CallNote, StateQuery as StateQuery
    from lemming.kernel.messages import OutboxEntry as OutboxEntry
    from lemming.kernel.org.capability_usage import (
        parse_agent_settings as parse_agent_settings, parse_org_settings as parse_org_settings,
    )
    from lemming.kernel.org.model_entries import ModelEntry as ModelEntry
    from lemming.kernel.plugins.capability_loader import find_fact as find_fact
    from lemming.kernel.providers import Reply as Reply
    from lemming.libraries.capability_registration import register_capability as register_capability
    from lemming.kernel.tick.tick_hooks import find_first_reading as find_first_reading
    from lemming.kernel.tick.tick_counter import load_tick as load_tick
    from lemming.kernel.tick.validation.checks import (
        AgentSubject as AgentSubject, CheckSubject as CheckSubject, Inventory as Inventory, TurnSubject as TurnSubject,
    )
    from lemming.kernel.obligations.grants import list_grants as list_grants
    from lemming.kernel.turn.descriptions import (
        AuxiliaryPrompt as AuxiliaryPrompt, ClockSchedule as ClockSchedule, DescribeQuery as DescribeQuery,
        ExpiredMemory as ExpiredMemory, OptionalReadPath as OptionalReadPath, OrgQuery as OrgQuery,
        OutsideFile as OutsideFile, OutsideRoot as OutsideRoot, ReadPath as ReadPath, ScheduleQuery as ScheduleQuery,
        SharedResource as SharedResource, TickView as TickView, ToolReference as ToolReference,
        VERDICT_SCHEMA as VERDICT_SCHEMA,
    )
    from lemming.kernel.turn.effect_chain import Interceptor as Interceptor
    from lemming.kernel.turn.forms.form_user_message import describe_task as describe_task
    from lemming.kernel.turn.live_phase import (
        CheckResult as CheckResult, LivePhase as LivePhase, RunTool as RunTool, SendRequest as SendRequest,
        StartTool as StartTool, TickScope as TickScope,
    )
    from lemming.kernel.turn.preparation import (
        Block as Block, CapabilityStatus as CapabilityStatus, Continue as Continue, Due as Due,
        Preparation as Preparation, RetentionHold as RetentionHold, RunTurn as RunTurn, SkipReason as SkipReason,
        TurnContext as TurnContext, Wake as Wake, Watch as Watch,
    )
    from lemming.kernel.turn.preparation_effects import (
        BuildPrompt as BuildPrompt, LabelPrompt as LabelPrompt, ReceiveEntry as ReceiveEntry,
        SelectContext as SelectContext, ShowEarlierResult as ShowEarlierResult, ShowEntry as ShowEntry,
        ShowFile as ShowFile, ShowMemory as ShowMemory,
    )
    from lemming.kernel.tools import ToolResult as ToolResult
    from lemming.kernel.turn.prompt_input import (
        PLAIN as PLAIN, PromptInput as PromptInput, PromptLabels as PromptLabels,
    )
    from lemming.kernel.tick_context import TickContext as TickContext
    from lemming.kernel.turn.tool_results import render_result as render_result
    from lemming.kernel.turn.turn_effects import (
        Allowed as Allowed, AskModel as AskModel, AskPerson as AskPerson, BindFiles as BindFiles, CallTool as CallTool,
        CarriedOut as CarriedOut, CarryOut as CarryOut, CheckEntries as CheckEntries, Deferred as Deferred,
        Effect as Effect, EffectFinished as EffectFinished, EffectPerformed as EffectPerformed,
        EffectStarted as EffectStarted, EndTurn as EndTurn, Event as Event, Interception as Interception,
        LiveEffect as LiveEffect, Outcome as Outcome, Rejected as Rejected, Replaced as Replaced, Seal as Seal,
        ShowResult as ShowResult, Suspended as Suspended, TakeReply as TakeReply, TakeResult as TakeResult,
        Withdraw as Withdraw, WriteEntry as WriteEntry, WriteFile as WriteFile, WriteMemory as WriteMemory,
        WriteNotes as WriteNotes, effect_content as effect_content,
    )
    from lemming.kernel.turn.turn_hooks import Capability as Capability
    from lemming.kernel.turn.turn_values import Answer as Answer, Steps as Steps, TurnInputs as TurnInputs
    from lemming.kernel.turn.turn_view import TurnView as TurnView
# isort: on
# fmt: on

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(_MODULES)
