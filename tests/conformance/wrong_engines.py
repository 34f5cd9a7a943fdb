"""Engines that are wrong in one thing each: `python wrong_engines.py NAME` runs a tick with it.

A check that passes all of these would be no check; `WRONG` says which checks each of them must not pass.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tiny_engine
from tiny_engine import Engine, Journal, Plain

WRONG: dict[str, tuple[type[Engine], tuple[str, ...]]] = {}


def fails(*checks: str) -> Any:
    """Register an engine by its class's name with the checks that it must fail."""

    def register(engine: type[Engine]) -> type[Engine]:
        WRONG[engine.__name__] = (engine, checks)
        return engine

    return register


@fails("turns_are_in_the_order_of_fire_points", "fire_points_come_before_names")
class GoesByPhase(Engine):
    """A lower phase_offset goes first, as one sentence of the guide has it."""

    def fire_point(self, name: str) -> tuple[float, str]:
        schedule = self.agents.get(name, {}).get("schedule", {})
        return schedule.get("phase_offset", 0) / schedule.get("run_every_n_ticks", 1), name


@fails("an_agent_is_due_by_arithmetic_on_the_tick")
class ForgetsTheOffset(Engine):
    """Who is due is found without the offset."""

    def is_due(self, name: str) -> bool:
        every = self.agents[name].get("schedule", {}).get("run_every_n_ticks", 1)
        return bool(self.now % every == 0)


@fails("a_quiet_tick_leaves_nothing_but_the_counter")
class WritesQuietTicks(Engine):
    """A tick without a turn has a journal."""

    def plan(self) -> None:
        super().plan()
        if not self.order:
            self.journal.add("tick_started", tick=self.now, order=[])


@fails("settings_that_are_gone_are_refused")
class TakesDefaults(Engine):
    """A settings file that is gone is taken for the defaults."""

    def require_settings(self) -> None:
        self.settings = {}


@fails("what_asks_for_gates_is_refused", "what_asks_for_trust_is_refused")
class PassesOverWhatItLacks(Engine):
    """What a file asks for and this engine does not have is passed over."""

    def left_out(self, plain: Plain) -> str:
        return ""


@fails("who_is_paused_takes_no_turn")
class KnowsNoPause(Engine):
    """`paused` has no effect."""

    def find_agents(self) -> None:
        super().find_agents()
        self.org.pop("paused", None)
        for resume in self.agents.values():
            resume.pop("paused", None)


@fails("a_second_engine_is_refused")
class TakesNoLock(Engine):
    """Two engines work in one folder."""

    def require_alone(self) -> None:
        return


@fails("all_state_is_in_the_folder")
class KeepsStateInTheLock(Engine):
    """What an agent has read is kept where it is thrown away."""

    def state(self, name: str) -> Plain:
        file = self.base / ".lemming" / f"{name}.read"
        return {**super().state(name), "read": json.loads(file.read_bytes()) if file.exists() else []}

    def end(self, start: Plain, *args: Any, **how: Any) -> None:
        (self.base / ".lemming" / f"{start['agent']}.read").write_text(json.dumps(start["read"]))
        super().end(start, *args, **how)


@fails("what_people_write_stays_as_it_is")
class TidiesResumes(Engine):
    """Resumes are written again in the engine's own form."""

    def find_agents(self) -> None:
        super().find_agents()
        for name, resume in self.agents.items():
            tiny_engine.write(self.base / f"agents/{name}/resume.json", tiny_engine.laid_out(resume))


@fails("a_broken_resume_stops_nobody_else")
class StopsAtABrokenResume(Engine):
    """One broken resume stops everybody."""

    def find_agents(self) -> None:
        super().find_agents()
        if self.broken:
            raise tiny_engine.Refused(3, "a broken resume")


@fails("an_unreadable_counter_is_never_replaced")
class StartsAnew(Engine):
    """A counter that cannot be read counts from 1 again."""

    def counter(self) -> int:
        try:
            return super().counter()
        except tiny_engine.Refused:
            return 1


@fails("a_tick_is_applied_once")
class RunsATickAgain(Engine):
    """A tick that is over is run again when the counter says so, its journal thrown away."""

    def counter(self) -> int:
        tick = tiny_engine.read(self.base / "tick.json", {"current_tick": 1})["current_tick"]
        journal = self.base / f"logs/ticks/{tick:08}.jsonl"
        if journal.exists() and b"tick_committed" in journal.read_bytes():
            journal.unlink()
        return super().counter()


@fails("the_counter_moves_last", "killed_while_a_model_is_asked")
class CountsFirst(Engine):
    """The counter moves before the turns."""

    def plan(self) -> None:
        super().plan()
        tiny_engine.write(self.base / "tick.json", tiny_engine.laid_out({"current_tick": self.now + 1}))


@fails("a_turn_sees_what_was_written_before_it", "with_visibility_tick_nobody_sees_the_tick_under_way")
class SeesByTheTurnsAlone(Engine):
    """The visibility of the settings is taken the wrong way round."""

    def visible(self, name: str) -> list[Plain]:
        self.org["visibility"] = "order" if self.org.get("visibility") == "tick" else "tick"
        try:
            return super().visible(name)
        finally:
            self.org["visibility"] = "order" if self.org["visibility"] == "tick" else "tick"


@fails("only_readable_outboxes_are_seen")
class TargetsMayRead(Engine):
    """Everybody reads everybody."""

    def visible(self, name: str) -> list[Plain]:
        self.agents[name] = {**self.agents[name], "permissions": {"read_outboxes": ["*"]}}
        return super().visible(name)


@fails("an_entry_with_a_target_is_new_to_it_only")
class KnowsNoTarget(Engine):
    """Every entry is new to everybody."""

    def is_new_to(self, name: str, entry: Plain) -> bool:
        return True


@fails("entries_by_hand_count_when_they_are_what_they_say")
class BelievesEveryEntry(Engine):
    """What a file holds is believed, whatever it is called."""

    def entries(self, author: str) -> list[Plain]:
        files = (self.base / f"agents/{author}/outbox").glob("*.json")
        return [json.loads(file.read_bytes()) for file in files if "torn" not in file.name]


@fails("an_entry_is_a_file_with_seven_keys")
class DrawsOtherIds(Engine):
    """Ids are made in another way."""

    def entry_id(self, tick: int, agent: str, index: int) -> str:
        return super().entry_id(tick, agent, index + 1)


@fails("no_call_is_made_that_cannot_be_paid", "an_allocation_overrides_the_resume")
class LooksAtTheMoneyAfterwards(Engine):
    """A call is made as long as anything is left."""

    def can_pay(self, name: str, spent: float) -> bool:
        return super().can_pay(name, spent - 1)


@fails("a_reply_that_is_not_the_contract_is_asked_for_again", "a_key_beyond_the_contract_is_left_out")
class TakesAnyReply(Engine):
    """What is no contract counts as an empty reply."""

    def contract(self, text: str, *, is_last: bool) -> Plain | None:
        return super().contract(text, is_last=is_last) or {}


@fails("a_key_beyond_the_contract_is_left_out", "a_wrong_optional_part_costs_no_question")
class AsksAgainForTheLeast(Engine):
    """Whatever is wrong is asked for again, as long as the resume allows it."""

    def contract(self, text: str, *, is_last: bool) -> Plain | None:
        sound = super().contract(text, is_last=is_last)
        return sound if is_last or sound == json.loads(text) else None


@fails("an_entry_that_stays_wrong_is_left_out")
class DropsAWrongEntryAtOnce(Engine):
    """An entry of a kind that is none is never asked for again."""

    def contract(self, text: str, *, is_last: bool) -> Plain | None:
        return super().contract(text, is_last=True)


@fails("a_failed_turn_writes_nothing_and_has_read_nothing")
class ReadsWhileFailing(Engine):
    """A turn that failed has read its inbox."""

    def end(self, start: Plain, *args: Any, failed: bool = False) -> None:
        super().end({**start, "state": {**start["state"], "read": start["read"]}}, *args, failed=failed)


@fails("old_entries_go_once_they_were_seen")
class RemovesByAge(Engine):
    """Entries go by their age alone."""

    def was_seen(self, entry: Plain, states: dict[str, list[str]]) -> bool:
        return True


class Forgetful(Journal):
    """A journal that keeps no answer."""

    def add(self, kind: str, **fields: Any) -> Plain:
        if kind == "model_replied":
            return {"type": kind, **fields}
        return super().add(kind, **fields)


@fails("the_journal_is_ahead_of_the_files", "a_journal_is_a_chain_that_tells_the_tick")
class WritesNoAnswerDown(Engine):
    """Answers are used and not recorded."""

    def find_agents(self) -> None:
        super().find_agents()
        tiny_engine.Journal = Forgetful  # type: ignore[misc]


@fails("any_beginning_of_a_journal_is_gone_on_from", "killed_as_files_appear", "killed_as_the_journal_grows")
class BeginsAgain(Engine):
    """After a crash, the tick is taken from the beginning."""

    def find_agents(self) -> None:
        super().find_agents()
        (self.base / f"logs/ticks/{self.now:08}.jsonl").unlink(missing_ok=True)


@fails("a_damaged_journal_stops_the_engine", "a_record_that_cannot_stand_there_stops_the_engine")
class PassesOverDamage(Engine):
    """A journal that cannot be believed is thrown away."""

    def find_agents(self) -> None:
        super().find_agents()
        file = self.base / f"logs/ticks/{self.now:08}.jsonl"
        try:
            Journal(file)
        except tiny_engine.Refused:
            file.unlink()


@fails("a_turn_that_kills_its_engine_ends")
class NeverGivesUp(Engine):
    """A turn is tried for ever."""

    def turn(self, name: str) -> None:
        self.org["max_attempts"] = 1000
        super().turn(name)


@fails("a_journal_of_a_tick_that_is_over_stays")
class KeepsOneJournal(Engine):
    """The journal of the tick before is thrown away."""

    def plan(self) -> None:
        super().plan()
        (self.base / f"logs/ticks/{self.now - 1:08}.jsonl").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(WRONG[sys.argv[1]][0]().main())
