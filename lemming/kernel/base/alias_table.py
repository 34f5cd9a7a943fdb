"""Table of old names, read by `aliases` at the first use of an old name.

Modules and classes are written without the leading `lemming.`. A pair `old=new` is a name, an attribute or a keyword.
"""

from __future__ import annotations


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


_MODULES = _pairs(
    "asking=client asking.outcome=client.ask_outcome asking.people=client.ask_client "
    "asking.questions=client.ask_client asking.streams=client.event_stream base.kinds=kernel.base.entry_kinds "
    "base.quoting=kernel.base.untrusted_quoting building=builder building.organisations=builder.org_builder "
    "building.plans=capabilities.plans.plan_builder "
    "capabilities.approvals.always=capabilities.gates.standing_approvals "
    "capabilities.batches.api=capabilities.batches.batch_api "
    "capabilities.cluster.calls=capabilities.cluster.cluster_calls capabilities.conditions=libraries.conditions "
    "capabilities.conditions.when=libraries.conditions.predicates "
    "capabilities.gates.checks=capabilities.gates.gate_evaluation "
    "capabilities.scripted=capabilities.scripted_models "
    "capabilities.scripted.scripted=capabilities.scripted_models.scripted_provider "
    "capabilities.strategies.registry=libraries.strategy_registry exchange=import_export facts=queries "
    "facts.findings=queries.findings facts.findings.rules=queries.findings.finding_rules "
    "facts.problems=queries.org_validation facts.views=queries.views "
    "facts.views.dispatch=queries.views.view_registry files.fitting=kernel.files.fast_decoder history=git_history "
    "journal.begun=kernel.journal.open_requests journal.events=kernel.journal.engine_events "
    "journal.file=kernel.journal.journal_file journal.records=kernel.journal.journal_records "
    "journal.report=kernel.journal.turn_report mail=kernel.inboxes mail.agenda=kernel.inboxes.turn_agenda "
    "mail.answers=kernel.inboxes.answer_payload mail.index=kernel.inboxes.entry_index "
    "mail.task=kernel.inboxes.turn_agenda mail.visibility=kernel.inboxes.visibility "
    "org.format=kernel.org.organisation org.models=kernel.org.model_entries "
    "plugins.capabilities=kernel.plugins.capability_loader plugins.registry=kernel.plugins.plugin_registry "
    "service=operations telemetry.readings=telemetry.journal_follower testing.faults=testing.fault_injection "
    "testing.people=testing.scripted_person tick.seams=kernel.tick.tick_hooks timeline=journal_tools "
    "timeline.record=journal_tools.recorded_tick turn.values=kernel.turn.turn_values"
)
KERNEL_FOLDERS = ("access", "base", "files", "journal", "llm", "org", "plugins", "tick", "turn")
"""Folders that are in `kernel` now: their modules, unless listed above, kept their names."""
NAMES = _pairs(
    "about=describe_field agent_folders=list_agent_folders answer_in=parse_answer answered=answer_each_tick "
    "Answers=AnswerSource Beforehand=StrategyInputs Begun=OpenRequest Called=CallResult code_of=error_code "
    "content_of=encode_record Ended=RequestOutcome entry_effect=to_file_effect events_in=iter_events "
    "findings_of=find_findings Found=CheckFinding FunctionBroke=CheckFunctionError ignore=ignore_event "
    "interrupted=interrupted_result is_of_a_provider=is_provider_error latest_survey=get_latest_survey "
    "Mail=MailView may_be_of_a_turn=may_be_from_turn memory_effect=make_memory_effect Message=InboundMessage "
    "name_of=error_name name_of_entry=make_entry_name NamedOnly=Agenda NamedStrategy=RegisteredStrategy "
    "names_in=parse_file_names names_of=parse_identities nearest_agent=suggest_agent one_survey=hold_survey "
    "option_names=list_option_names Org=OrgSettings Outgoing=OutgoingEntry OwnFolders=OwnFolderCheck "
    "Platter=DurableDisk Point=CrashPoint problems_of_agents=validate_agents problems_of_config=validate_config "
    "problems_of_resume=validate_resume problems_of_resumes=validate_agents problems_of_settings=validate_config "
    "provider_class=get_provider_class providers_of=available_providers question_in=question_digest "
    "read_memories=load_memories read_tick=load_tick_record recorded_failure=restore_error "
    "require_reply=require_usable_finish send=write_person_entry server_sources=get_server_sources "
    "shipped_tools=iter_shipped_tools Soon=PollResult TakesBatches=BatchProvider targets_in=parse_targets "
    "toolset_of=get_toolset trust_in=get_trust_label view=build_view View=ReaderView waiting=list_person_inbox "
    "Waits=PendingItem why_no_server=missing_server_tool_reason"
)
_MEMBERS = {
    "kernel.turn.strategy.Turn": (
        "value=ask_json reply=ask_reply leave=leave_note shown=append_results is_over=is_finished given=snapshot"
    ),
    "kernel.tools.tool_definition.Tool": (
        "why_refused=refusal_reason reads=read_paths writes=write_paths reaches_outside=describe_side_effects "
        "source=source_file is_planned=is_plan_only defined_by=definition says_parameters=has_custom_schema "
        "check=parse_arguments"
    ),
    "kernel.tools.tool_definition.ToolResult": "kept=state",
    "kernel.tools.tool_context.ToolContext": (
        "place=resolve_path all_wanted=requested_effects wanted=requested look=check_result worked=successes"
    ),
    "kernel.providers.LLMProvider": "complete_heard=complete_streaming look_at_batch=get_batch_progress",
    "capabilities.channels.channel.Channel": "arrived=pending_arrivals place=endpoint watched=watch_folder",
    "capabilities.channels.channel.ChannelContext": (
        "room=remaining_entries refuse=record_refusal payload=build_payload require_few=require_below_limit "
        "own_entries=list_entries"
    ),
    "capabilities.channels.channel.OutgoingEntry": "asked=answered_id",
    "capabilities.channels.channel.PollResult": "again_s=poll_after_s",
    "kernel.inboxes.inbox.Inbox": "known=earlier own=own_entries",
    "kernel.inboxes.visibility.MailView": (
        "open_for=scan_outboxes written=record_written readable=readable_names past=past_names reminders=due_reminders "
        "may_be_reminded=has_hidden_entries everybody=all_past_names own_newest=newest_own today=entries_this_tick "
        "today_of=author_entries_this_tick callers_of=get_callers looks_at=capture_states misplaced=find_misplaced "
        "named=known_names at_hand=get_cached"
    ),
    "kernel.files.effects.FileEffect": "place=path_key says=memory_value",
    "kernel.inboxes.turn_agenda.RequestOutcome": "payload=answer_payload asked=sub_request",
    "kernel.inboxes.turn_agenda.Task": "begun=open_request asked=outcomes",
    "kernel.inboxes.reader_view.ReaderView": (
        "fresh=iter_unread fresh_by_turns=iter_unread_fair count_fresh=count_unread known=iter_other "
        "mark_after=next_mark fresh_of=iter_author_unread sees=can_see"
    ),
    "kernel.journal.open_requests.OpenRequest": (
        "open=open_sub_requests goes_on=can_continue wakes_at=next_wake_tick ended=with_outcomes "
        "is_only_shown=is_untouched says_anything=is_worth_recording has_an_end=has_deadline"
    ),
    "kernel.journal.ledger.AgentState": "used_up=consumed_credits having_spent=with_spending place=position",
    "kernel.journal.engine_events.Event": "about=agent_name as_shown=as_output_json",
    "kernel.journal.journal_records.Record": "for_line=as_journal_json sent_calls=submitted_calls",
    "kernel.agents.Survey": (
        "further=extension_keys paused=paused_agents askers=teams_by_member order=turn_order "
        "names_capabilities=has_plugin_capabilities names_servers=has_server_tools"
    ),
    "kernel.messages.OutboxEntry": "line=prompt_line is_new_to=is_news_to_reader told=summary_line",
    "kernel.messages.EntryName": "is_derived=has_engine_id",
    "kernel.org.model_entries.ModelEntry": "calls_at_once=concurrency_limit",
    "kernel.org.resume.Agent": "plain=as_json further=extensions",
    "kernel.org.config.Config": "channels_among=find_channels",
    "kernel.org.config.OrgSettings": "parallel=parallel_limit further=extensions",
    "kernel.org.organisation.Organisation": "at=from_path own=get_cache",
    "client.ask_outcome.AskOutcome": "why_unanswered=unanswered_reason",
    "capabilities.plans.plan_builder.Condition": "plain=json",
    "capabilities.plans.plan_builder.PlanStep": "plain=json",
    "testing.scripted_person.ScriptedPerson": "said=replies",
    "kernel.inboxes.turn_agenda.Agenda": (
        "next=next_task beside=inbox_requests sets_aside=is_excluded is_kept=is_deferred is_nothing_new=is_irrelevant"
    ),
}
_REPLACED = {
    "kernel.turn.turn_hooks.Capability": (
        "part=interceptor holder=intercept completes=intercept looks_at_calls=intercept limits=intercept "
        "tracing=intercept words=trust_labeler given_up= kept_results=intercept why_not=provides problems=provides "
        "problems_of_org=provides problems_of_key=provides problems_of_files=provides wrong_with=provides "
        "require_kept=provides require_held=provides shares=describe keeps=describe rest=describe note=describe "
        "tools_named=describe roots_outside=describe files_outside=describe questions=describe model_of=describe "
        "reaches= awaits= decides= waiting= entries_of= raises= asked= purpose_in= habits=turn_policy gathers= "
        "renaming= settings_in= settings_of="
    ),
}
_KEYWORDS = {
    "capabilities.channels.channel.ChannelContext.record_refusal": "why=reason",
    "capabilities.channels.channel.ChannelContext.remaining_entries": "most=limit",
    "client.ask_client.answer": "waits=item",
    "client.ask_client.approve": "waits=item",
    "client.ask_client.deny": "waits=item",
    "engine.ticks": "hurried=immediate",
    "telemetry.journal_follower.iter_events": "told=printed",
}
_MOVED = _pairs(
    "approvals=capabilities.approvals arguments=kernel.tools.arguments channels=capabilities.channels "
    "clock=kernel.base.clock config=kernel.org.config contract=kernel.base.contract "
    "declared=libraries.tool_decorator events=kernel.journal.engine_events gates=capabilities.gates "
    "turn.draft=ext turn.moments=ext turn.places=ext turn.preparing=ext turn.seams=ext "
    "kinds=kernel.base.entry_kinds mcp=capabilities.mcp models=kernel.org.model_entries "
    "organisation=kernel.org.organisation paths=kernel.base.paths plans=capabilities.plans "
    "quoting=kernel.base.untrusted_quoting report=kernel.journal.turn_report resume=kernel.org.resume "
    "schedule=kernel.org.schedule skills=capabilities.skills toolbox=capabilities.toolbox "
    "toolset=kernel.tools.toolset trust=capabilities.trust when=libraries.conditions.predicates"
)


def _full(path: str) -> str:
    return f"lemming.{path}"


MODULES = {_full(old): _full(new) for old, new in _MODULES.items()}
"""New path of each renamed module."""
MEMBERS = {_full(name): _pairs(text) for name, text in _MEMBERS.items()}
"""New names of the attributes and hooks of each class."""
REPLACED = {_full(name): _pairs(text) for name, text in _REPLACED.items()}
"""Hooks of each class that are gone, each with the hook in its place, or "" for a hook that plugins never needed.

A plugin with such a hook is refused.
"""
KEYWORDS = {_full(name): _pairs(text) for name, text in _KEYWORDS.items()}
"""New names of the keyword arguments of each function. The fields of a value are in `MEMBERS`."""
MOVED = {_full(old): _full(new) for old, new in _MOVED.items()}
"""Current path of each module that is gone, or was moved before 0.2.0. The old path does not work."""
_PLACES = _pairs(
    "kernel.base.clock.FrozenClock=testing kernel.tick.runtime.open_org=operations.opening "
    "kernel.base.times.parse_moment=libraries.everyday_times kernel.org.changing.edit_file=libraries.settings_edits "
    "kernel.inboxes.answer_payload.parse_answer=obligations.answer_fields "
    "kernel.inboxes.visibility.ReaderView=kernel.inboxes.reader_view "
    "kernel.journal.journal_file.JournalContents=kernel.journal.journal_parser "
    "kernel.journal.journal_file.parse_records=kernel.journal.journal_parser "
    "kernel.org.config.has_credit_override=queries.credit_accounts "
    "kernel.org.config.parse_capability_block=kernel.org.settings_blocks "
    "kernel.org.config.resolve_credits=kernel.org.capability_usage"
)
PLACES = {_full(old): _full(new) for old, new in _PLACES.items()}
"""Current module of each name that has left its module."""
