"""Check functions and checking programs of one turn: recorded results first, then live ones, each recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.kernel.base.redaction.secrets import redact_json, redact_values
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import GateAsked
from lemming.kernel.tick.error_boundary import EngineStopped
from lemming.kernel.tick.recorded_answers import restore_finding
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.turn.turn_values import CheckFinding, CheckFunctionError, TurnInputs

Ask = Callable[[], CheckFinding | None]


class CheckCalls:
    """The checks of a turn, by number as in the journal."""

    def __init__(self, runtime: Runtime, journal: Journal, inputs: TurnInputs) -> None:
        self._runtime, self._journal, self._name = runtime, journal, inputs.agent.name
        records = journal.find_agent_records(self._name, inputs.turn)
        self._records = {record.number: record for record in records if isinstance(record, GateAsked)}

    def call_function(self, number: int, name: str, ask: Ask) -> CheckFinding | None:
        """Return the finding of a check function, recorded or live. Raises the function's error."""
        if number not in self._records:
            self._records[number] = self._journal.append(self._call_live(number, name, ask))
        return restore_finding(self._records[number])

    def run_program(self, number: int, name: str, run: Ask) -> CheckFinding:
        """Return the finding of a program, recorded or live. A run that was cut off by a kill is made again."""
        if number not in self._records:
            record = self._call_live(number, name, run, wrote=True)
            if self._runtime.stop.is_set():  # a stop ends the program: its result says nothing
                raise EngineStopped
            self._records[number] = self._journal.append(record)
        finding = restore_finding(self._records[number])
        return finding or CheckFinding("it gave no result")

    def _call_live(self, number: int, name: str, ask: Ask, **optional_fields: Any) -> GateAsked:
        """Call a check and return the record of its finding or error."""
        fields: dict[str, Any] = {"agent": self._name, "number": number, "function": name, **optional_fields}
        try:
            finding = self._runtime.call_function(self._name, number, name, ask)
        except CheckFunctionError as error:
            return GateAsked(**fields, error=redact_values(str(error)))
        return GateAsked(**fields, found=redact_json(finding._asdict()) if finding else None)
