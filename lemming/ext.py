"""Everything a capability is written with. docs/capabilities.md builds one in ten minutes.

A capability is one class: it reads files in `prepare`, decides about effects in `intercept`, keeps state in `reduce`.
"""

from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import ConfigError, ContractError, LemmingError, Problem
from lemming.kernel.base.paths import resume_file
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.inboxes.capability_state import CallNote, StateQuery
from lemming.kernel.org.capability_usage import parse_agent_settings, parse_org_settings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import find_fact, register_capability
from lemming.kernel.turn.check_subjects import AgentCheck, CheckSubject, OrgCheck
from lemming.kernel.turn.descriptions import AuxiliaryPrompt, DescribeQuery, OrgQuery
from lemming.kernel.turn.guards import SharedResource
from lemming.kernel.turn.live_effects import CheckResult, RunTool, SendRequest, StartTool
from lemming.kernel.turn.preparation import Block, Continue, Due, Preparation, Wake, Watch
from lemming.kernel.turn.preparation_effects import (
    BuildPrompt,
    LabelPrompt,
    ReceiveEntry,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
)
from lemming.kernel.turn.turn_context import RetentionHold
from lemming.kernel.turn.turn_effects import (
    Allowed,
    AskModel,
    AskPerson,
    CallTool,
    CarryOut,
    Deferred,
    Effect,
    EffectFinished,
    EffectPerformed,
    EffectStarted,
    EndTurn,
    Event,
    Interception,
    Outcome,
    Rejected,
    Replaced,
    Seal,
    ShowResult,
    Suspended,
    TakeReply,
    TakeResult,
    Withdraw,
    WriteEntry,
    WriteFile,
    WriteMemory,
    WriteNotes,
    effect_content,
)
from lemming.kernel.turn.turn_hooks import Capability, CapabilityStatus, SkipReason
from lemming.kernel.turn.turn_view import TurnView

__all__ = [
    "AgentCheck",
    "Allowed",
    "AskModel",
    "AskPerson",
    "AuxiliaryPrompt",
    "Block",
    "BuildPrompt",
    "CallNote",
    "CallTool",
    "Capability",
    "CapabilityStatus",
    "CarryOut",
    "CheckResult",
    "CheckSubject",
    "ConfigError",
    "Continue",
    "ContractError",
    "Deferred",
    "DescribeQuery",
    "Due",
    "Effect",
    "EffectFinished",
    "EffectPerformed",
    "EffectStarted",
    "EndTurn",
    "Event",
    "Interception",
    "LabelPrompt",
    "LemmingError",
    "ModelEntry",
    "NewEntry",
    "OrgCheck",
    "OrgQuery",
    "Outcome",
    "Preparation",
    "Problem",
    "ReceiveEntry",
    "Rejected",
    "Replaced",
    "RetentionHold",
    "RunTool",
    "Seal",
    "SelectContext",
    "SendRequest",
    "SharedResource",
    "ShowEarlierResult",
    "ShowEntry",
    "ShowFile",
    "ShowMemory",
    "ShowResult",
    "SkipReason",
    "StartTool",
    "StateQuery",
    "Suspended",
    "TakeReply",
    "TakeResult",
    "ToolCall",
    "TurnReply",
    "TurnView",
    "Wake",
    "Watch",
    "Withdraw",
    "WriteEntry",
    "WriteFile",
    "WriteMemory",
    "WriteNotes",
    "describe_field",
    "effect_content",
    "find_fact",
    "parse_agent_settings",
    "parse_org_settings",
    "register_capability",
    "resume_file",
]
