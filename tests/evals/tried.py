"""An organisation whose model counts how often it is asked, with cases to try it with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.cli import run
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import Crash, make_org, resume, say

PRICED = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 1.0}


class Counted(Backend):
    """Answers with what it was told last, and counts; every test has an account of its own, by the option."""

    accounts: dict[str, list[Request]] = {}  # noqa: RUF012
    dies_at = 0

    def __init__(self, *, account: str, answers: list[str] | None = None) -> None:
        self._asked, self._answers = self.accounts.setdefault(account, []), answers

    def complete(self, request: Request) -> Reply:
        """Answer, and put the question on the account."""
        if len(self._asked) + 1 == self.dies_at:
            raise Crash
        self._asked.append(request)
        if request.agent == "judge":
            passes = "good" in request.messages[-1]["content"]
            return Reply(json.dumps({"passes": passes, "reason": "it does not say good"}), 10, 10)
        number = len(self._asked)
        text = self._answers[(number - 1) % len(self._answers)] if self._answers else f"answer {number}"
        return Reply(json.dumps(say(text)), 3000, 1000)


class Tried:
    """An organisation with ada, who answers, and human, who writes; and its `lemming eval`."""

    def __init__(self, base: Path, *, answers: list[str] | None = None, **more: Any) -> None:
        register_provider("counted", Counted)
        self.base, account = base, str(base)
        self.asked = Counted.accounts.setdefault(account, [])
        options: dict[str, Any] = {"account": account, **({"answers": answers} if answers else {})}
        model = {"provider": "counted", "model": "m", "options": options, **PRICED}
        people = [resume("human", model={"key": "human"})]
        ada = resume("ada", model={"key": "counted"}, **more)
        make_org(base, ada, *people, models={"counted": model, "other": {**model, "model": "n"},
                                             "human": {"provider": "human"}})  # fmt: skip

    def case(self, name: str = "first", **case: Any) -> Path:
        """Write a case, and return its folder."""
        plain = {"ticks": 1, "expect": [{"entry": {"author": "ada"}}], **case}
        fs.write_atomic(self.base, f"evals/{name}/case.json", dump_pretty(plain))
        return self.base / "evals" / name

    def eval(self, *words: str) -> int:
        """Run `lemming eval`, and return its exit status."""
        return run(["-C", str(self.base), "eval", *words, "--trust"])

    def runs(self, tmp_path: Path, *words: str) -> list[dict[str, Any]]:
        """Run `lemming eval`, and return its runs."""
        out = tmp_path / "runs.jsonl"
        self.eval("--out", str(out), *words)
        return [json.loads(line) for line in out.read_text().splitlines()]
