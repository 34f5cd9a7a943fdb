"""The inputs of a verification: journals, digests and the state root, loaded once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from lemming.journal_tools.verify.journal_facts import JournalFacts, load_journal_facts
from lemming.journal_tools.verify.state_root import ReportProgress, compute_file_digests, compute_state_root
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.organisation import OrgPath


@dataclass(frozen=True)
class Verification:
    """The result of a verification. `findings` are sorted by tick and file. `root`: None unless every file was read."""

    findings: tuple[Problem, ...]
    ticks: int
    turns: int
    files: int
    root: str | None
    skimmed: int = 0
    """Number of the oldest journals, of which only checksums and lines that name files were checked."""

    @property
    def errors(self) -> list[Problem]:
        """The findings of severity "error"."""
        return [finding for finding in self.findings if finding.is_error]


class VerificationInputs:
    """The contents of the journals and the digests of the files, each read once.

    `newest`: number of newest journals to parse fully; in older journals only the checksums and lines with
    file names are checked. `only`: number of newest journals to read at all, with the files written in their
    turns. Nothing is written and nothing is locked. Raises `DiskError` if a file cannot be read.
    """

    def __init__(
        self,
        base: OrgPath,
        newest: int | None,
        only: int | None = None,
        steps: ReportProgress = lambda *_: None,
        *,
        uses_all_cores: bool = False,
    ) -> None:
        self.base, self.only, self._newest, self._steps = base, only, newest, steps
        self._uses_all_cores = uses_all_cores

    @cached_property
    def journal_facts(self) -> JournalFacts:
        """The facts from the journals."""
        return load_journal_facts(
            self.base,
            newest=self._newest,
            only=self.only,
            steps=self._steps,
            uses_all_cores=self._uses_all_cores,
        )

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file that counts; empty with `only`, because digests are then computed on demand."""
        if self.only is not None:
            return {}
        return compute_file_digests(self.base, self._steps, uses_all_cores=self._uses_all_cores)

    @cached_property
    def state_root(self) -> str | None:
        """The state root, or None unless every file is read."""
        return compute_state_root(self.digests) if self.only is None else None

    def build_report(self, findings: Iterable[Problem], ticks: list[int] | None = None) -> Verification:
        """Return a report with the findings about these ticks (by default all) and the numbers of checked items."""
        facts, chosen = self.journal_facts, set(self.journal_facts.ticks if ticks is None else ticks)
        selected = [mismatch_found for mismatch_found in findings if ticks is None or mismatch_found.tick in chosen]
        selected.sort(key=lambda finding: (finding.tick, finding.file))
        files = sum(written.tick in chosen for written in facts.files.values())
        turns = sum(tick in chosen for turns in facts.turns.values() for tick in turns)
        turns += sum(count for tick, count in facts.later_turns.items() if tick in chosen)
        return Verification(tuple(selected), len(chosen), turns, files, self.state_root, facts.skimmed)
