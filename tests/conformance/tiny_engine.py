"""A second engine, written from docs/specification.md: one file, no import of ours, run in an organisation.

It shows that the page says enough to go by, and it is quick, so every check runs against it. It takes one
turn after the other, knows the provider `cli` and the tool `file_write`, and nothing of requests or gates.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

Plain = dict[str, Any]
FOUR = {"outbox_entries", "tool_calls", "memory_updates", "notes"}
SEVEN = {"id", "tick", "agent", "kind", "payload", "tags", "created_at"}
KINDS = {"message", "report", "request", "response", "status"}
NEEDS: dict[str, set[str]] = {
    "tick_started": {"tick", "order"}, "turn_started": {"agent", "values", "state"},
    "turn_resumed": {"agent"},
    "model_replied": {"agent", "call", "text", "at"}, "tool_finished": {"agent", "tool", "output"},
    "turn_skipped": {"agent", "reason"}, "turn_committed": {"agent", "status", "files"},
    "entries_expired": {"files"}, "tick_committed": {"tick"},
}  # fmt: skip
WITHIN = {"turn_resumed", "model_replied", "tool_finished"}


class Refused(Exception):
    """No tick is run; the status says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def strict(raw: bytes) -> Any:
    """Return the JSON in some bytes; raise ValueError for what is not strict."""

    def once(pairs: list[tuple[str, Any]]) -> Plain:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(raw.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)


def read(path: Path, default: Any = None) -> Any:
    """Return what a regular file holds; `default` where there is none."""
    if path.is_symlink():
        raise ValueError("a link")
    return strict(path.read_bytes()) if path.exists() else default


def write(path: Path, raw: bytes) -> None:
    """Put a whole file in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(raw)
    beside.replace(path)


def laid_out(value: Any) -> bytes:
    """Return JSON as the files of an organisation have it."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def now() -> str:
    """Return the time of day."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def whole(value: Any, least: int = 0) -> bool:
    """Whether it is a whole number."""
    return type(value) is int and value >= least


class Journal:
    """The records of one tick; a torn last line is cut off before the first one is added."""

    def __init__(self, file: Path) -> None:
        self.file, self.records = file, list[Plain]()
        self._check, self._length = b"", 0
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        for number, line in enumerate(lines, 1):
            body, _, rest = line.rpartition(b',"check":"')
            if rest != self.check(body) + b'"}\n':
                if number == len(lines):
                    break
                raise Refused(7, f"line {number} of {file} is damaged")
            self._take(strict(line), rest[:16], len(line))
        self.epoch = 1 + max([record["epoch"] for record in self.records], default=0)

    def check(self, body: bytes) -> bytes:
        """Return the check of the next line."""
        return blake2b(body, digest_size=8, key=self._check).hexdigest().encode()

    def _take(self, record: Plain, check: bytes, length: int) -> None:
        name, agent = record["type"], record.get("agent")
        order = self.records[0]["order"] if self.records else []
        begun = {own["agent"] for own in self.records if own["type"] == "turn_started"}
        wrong = not NEEDS.get(name, {""}) <= record.keys() or (not self.records) != (name == "tick_started")
        wrong |= agent is not None and agent not in order
        wrong |= (name in WITHIN and agent not in begun) or (name == "turn_started" and agent in begun)
        if wrong:
            raise Refused(7, f"{name} cannot stand there")
        self.records.append(record)
        self._check, self._length = check, self._length + length

    def add(self, kind: str, **fields: Any) -> Plain:
        """Write one more record, before anything that follows from it."""
        record = {"type": kind, "epoch": self.epoch, **fields}
        body = json.dumps(record, separators=(",", ":")).encode()[:-1]
        check = self.check(body)
        line = body + b',"check":"' + check + b'"}\n'
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.file, "ab") as file:
            file.truncate(self._length)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._take(record, check, len(line))
        return record

    def of(self, agent: str, *types: str) -> list[Plain]:
        """Return an agent's records of some types."""
        return [own for own in self.records if own.get("agent") == agent and own["type"] in types]


class Engine:
    """One tick of the organisation in the working folder."""

    agents: dict[str, Plain]
    journal: Journal

    def __init__(self) -> None:
        self.base = Path.cwd()

    def main(self) -> int:
        """Run one tick; return the status."""
        os.umask(0o077)
        try:
            self.require_alone()
            return self.tick()
        except Refused as refused:
            print(refused, file=sys.stderr)
            return refused.status

    def require_alone(self) -> None:
        """Take the lock."""
        (self.base / ".lemming").mkdir(exist_ok=True)
        self.lock = os.open(self.base / ".lemming/lock", os.O_CREAT | os.O_WRONLY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(4, "another engine runs") from None

    def tick(self) -> int:
        """Plan, turns, clean up, counter, end."""
        try:
            self.org = read(self.base / "config/org.json", {})
            self.models = read(self.base / "config/models.json", {})
            self.credits = read(self.base / "config/credits.json", {})
        except ValueError as error:
            raise Refused(3, str(error)) from None
        self.require_settings()
        if self.org.get("format", 1) not in (1, 2):
            raise Refused(3, "a format that is not known")
        if asked := self.left_out(self.org):
            raise Refused(3, f"this engine has no {asked}")
        self.now = self.counter()
        self.find_agents()
        self.journal = Journal(self.base / f"logs/ticks/{self.now:08}.jsonl")
        self.plan()
        if self.order:
            for name in self.order:
                self.turn(name)
            self.expire()
        write(self.base / "tick.json", laid_out({"current_tick": self.now + 1}))
        if self.order:
            self.journal.add("tick_committed", tick=self.now)
        return 0

    def require_settings(self) -> None:
        """Refuse to run without a settings file that the newest journal names (FIL-9)."""
        config = {"org": self.org, "models": self.models, "credits": self.credits}
        paths = [f"config/{name}.json" for name, plain in config.items() if plain]
        self.settings = {path: sha256((self.base / path).read_bytes()).hexdigest() for path in paths}
        for journal in sorted(self.base.glob("logs/ticks/*.jsonl"))[-1:]:
            line, end, _ = journal.read_bytes().partition(b"\n")
            named = strict(line).get("settings", {}) if end else {}
            if gone := [path for path in named if not (self.base / path).exists()]:
                raise Refused(3, f"{gone[0]} is gone, and the last tick ran with it")

    def counter(self) -> int:
        """Return the tick that is next."""
        try:
            tick = read(self.base / "tick.json", {"current_tick": 1})["current_tick"]
        except (ValueError, TypeError, KeyError):
            raise Refused(7, "tick.json cannot be used") from None
        if not whole(tick):
            raise Refused(7, "tick.json cannot be used")
        ended = [self.base / f"logs/ticks/{tick:08}.jsonl"]
        if any(file.exists() and b'"type":"tick_committed"' in file.read_bytes() for file in ended):
            raise Refused(7, f"tick {tick} is over")
        return int(tick)

    def find_agents(self) -> None:
        """Read all resumes; one that cannot be used is its agent's trouble."""
        self.agents, self.broken = {}, {}
        for file in sorted(self.base.glob("agents/*/resume.json")):
            name = file.parent.name
            try:
                resume = read(file)
                schedule = resume.get("schedule", {})
                is_whole = whole(schedule.get("run_every_n_ticks", 1), 1) and whole(schedule.get("phase_offset", 0))
                if asked := self.left_out(resume):
                    raise ValueError(f"this engine has no {asked}")
                if resume["name"] != name or not isinstance(resume["instructions"], str) or not is_whole:
                    raise ValueError("it cannot be used")
                self.agents[name] = resume
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                self.broken[name] = str(error)

    def left_out(self, plain: Plain) -> str:
        """Return what a file asks for that this engine does not have (ENG-6); empty: nothing."""
        key = plain.get("model", {}).get("key", "default")
        provider = self.models.get(key, {}).get("provider", "cli")
        asked = [*({"gates", "team", "trust"} & plain.keys()), *({provider} - {"cli", "human"})]
        return ", ".join(sorted(asked))

    def fire_point(self, name: str) -> tuple[float, str]:
        """Return by what an agent's turn is ordered."""
        schedule = self.agents.get(name, {}).get("schedule", {})
        every = schedule.get("run_every_n_ticks", 1)
        return -schedule.get("phase_offset", 0) % every / every, name

    def is_due(self, name: str) -> bool:
        """Whether an agent is due in this tick."""
        schedule = self.agents[name].get("schedule", {})
        return (self.now + schedule.get("phase_offset", 0)) % schedule.get("run_every_n_ticks", 1) == 0

    def plan(self) -> None:
        """Say who takes a turn, in which order."""
        if self.journal.records:
            self.order = list(self.journal.records[0]["order"])
            return
        due = [name for name in self.agents if self.is_due(name)]
        free = [name for name in due if not (self.org.get("paused") or self.agents[name].get("paused"))]
        self.order = sorted(free, key=self.fire_point)
        if self.order:
            self.journal.add(
                "tick_started", tick=self.now, at=now(), order=self.order, broken=self.broken, settings=self.settings
            )

    def state(self, name: str) -> Plain:
        """Return an agent's state before this tick, out of its ledger."""
        lines = [line for line in self.ledger(name) if line["tick"] < self.now]
        return lines[-1] if lines else {"turns": 0, "credits": 0, "read": [], "results": []}

    def ledger(self, name: str) -> list[Plain]:
        """Return the whole lines of a ledger."""
        file = self.base / f"agents/{name}/turns.jsonl"
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        return [strict(line) for line in lines if line.endswith(b"\n")]

    def entries(self, author: str) -> list[Plain]:
        """Return the entries in an outbox that are what they say."""
        found = []
        for file in (self.base / f"agents/{author}/outbox").glob("*_*.json"):
            try:
                entry = read(file)
                is_one = entry.keys() == SEVEN and entry["kind"] in KINDS and entry["agent"] == author
                if is_one and file.name == f"{entry['tick']:08}_{entry['id']}.json":
                    found.append(entry)
            except (ValueError, AttributeError, TypeError):
                continue
        return found

    def visible(self, name: str) -> list[Plain]:
        """Return what an agent may see in its turn, in the order in which it was written."""
        reads = self.agents[name].get("permissions", {}).get("read_outboxes", [])
        folders = {folder.name for folder in self.base.glob("agents/*")} - {name}
        authors = folders if "*" in reads else folders & set(reads)
        before = self.order[: self.order.index(name)]
        is_shown = self.org.get("visibility", "order") == "order"
        found = []
        for entry in (entry for author in authors for entry in self.entries(author)):
            is_of_now = entry["tick"] == self.now and (entry["agent"] in before or entry["agent"] not in self.order)
            if entry["tick"] < self.now or (is_shown and is_of_now):
                found.append(entry)
        return sorted(found, key=self.place)

    def place(self, entry: Plain) -> tuple[Any, ...]:
        """Return where an entry stands among all."""
        ids = [self.entry_id(entry["tick"], entry["agent"], index) for index in range(64)]
        number = ids.index(entry["id"]) if entry["id"] in ids else 64
        return entry["tick"], self.fire_point(entry["agent"]), number, entry["id"]

    def entry_id(self, tick: int, agent: str, index: int) -> str:
        """Return the id of the entry that an agent writes as number `index` in a tick."""
        return blake2b(f"{tick}/{agent}/{index}".encode(), digest_size=6).hexdigest()

    def is_new_to(self, name: str, entry: Plain) -> bool:
        """Whether an entry is for an agent, as far as its target says."""
        target = entry["payload"].get("target", [])
        names = {str(each).lower() for each in (target if isinstance(target, list) else [target])}
        known = names & (self.agents.keys() - {entry["agent"]})
        return name in known or not known or bool(names & {"*", "all"})

    def values(self, name: str, state: Plain) -> tuple[Plain, list[str]]:
        """Return what a turn is shown, and what it will have read."""
        seen = self.visible(name)
        new = [entry for entry in seen if self.is_new_to(name, entry) and self.key(entry) not in state["read"]]
        inbox = new[: self.org.get("inbox_limit", 50)]
        files = sorted((self.base / f"agents/{name}/memory").glob("[!.]*.json"))
        values = {
            "agent": {"name": name, "title": self.agents[name].get("title", "")}, "tick": self.now,
            "request": None, "thread": [], "asked": [], "inbox": inbox,
            "known": [entry for entry in seen if entry not in new],
            "own": sorted(self.entries(name), key=self.place),
            "memory": {file.stem: read(file)["value"] for file in files},
            "context": [], "results": state["results"], "warnings": [],
        }  # fmt: skip
        return values, [*state["read"], *map(self.key, inbox)]

    def key(self, entry: Plain) -> str:
        """Return what an entry is known by."""
        return f"{entry['agent']}/{entry['tick']:08}_{entry['id']}"

    def turn(self, name: str) -> None:
        """Take one turn, or go on with it."""
        if self.journal.of(name, "turn_committed", "turn_skipped"):
            return
        started = self.journal.of(name, "turn_started")
        if started:
            start = started[0]
            attempts = 1 + len(self.journal.of(name, "turn_resumed"))
            if attempts >= self.org.get("max_attempts", 3) and not self.journal.of(name, "model_replied"):
                self.end(start, 0, [], [], failed=True)
                return
            self.journal.add("turn_resumed", agent=name)
        else:
            state = self.state(name)
            values, read_then = self.values(name, state)
            start = self.journal.add("turn_started", agent=name, values=values, state=state, read=read_then)
        self.converse(name, start)

    def converse(self, name: str, start: Plain) -> None:
        """Ask until the reply is the contract, or nothing is left to ask with."""
        line = self.models[self.agents[name].get("model", {}).get("key", "default")]
        prompt, price, spent = json.dumps(start["values"]), line.get("per_call", 1), 0
        repairs = self.agents[name].get("turn", {}).get("repairs", 1)
        for call in range(1 + repairs):
            said = [record for record in self.journal.of(name, "model_replied") if record["call"] == call]
            if not said:
                if not self.can_pay(name, start["state"]["credits"] + spent + price):
                    self.end(start, spent, [], [], failed=True)
                    return
                text = self.ask(line["options"]["command"], prompt)
                said = [self.journal.add("model_replied", agent=name, call=call, text=text, at=now())]
            spent += price
            reply = self.contract(said[0]["text"], is_last=call == repairs)
            if reply is not None:
                self.apply(start, reply, said[0]["at"], spent)
                return
            prompt += f"\n\nYour answer was:\n{said[0]['text']}\n\nThat is not the contract. Answer once more."
        self.end(start, spent, [], [], failed=True)

    def can_pay(self, name: str, spent: float) -> bool:
        """Whether an agent may have spent so much."""
        resume = self.agents[name].get("credits", {})
        most = self.credits.get(name, resume).get("max_credits")
        return most is None or spent <= most

    def ask(self, command: list[str], prompt: str) -> str:
        """Return what a model's program prints."""
        return subprocess.run(command, input=prompt.encode(), stdout=subprocess.PIPE).stdout.decode()

    def contract(self, text: str, *, is_last: bool) -> Plain | None:
        """Return a reply that is the contract; of the last one, what of it is."""
        try:
            reply = strict(text.encode())
        except ValueError:
            return None
        if not isinstance(reply, dict):
            return None
        entries = [said for said in reply.get("outbox_entries", []) if said["kind"] in KINDS]
        if not is_last and len(entries) < len(reply.get("outbox_entries", [])):
            return None
        for said in entries:
            said["tags"] = said["tags"] if isinstance(said.get("tags"), list) else []
        calls = [call for call in reply.get("tool_calls", []) if isinstance(call.get("tool"), str)]
        sound = {**reply, "outbox_entries": entries, "tool_calls": calls}
        return {key: value for key, value in sound.items() if key in FOUR & reply.keys()} or None

    def apply(self, start: Plain, reply: Plain, at: str, spent: float) -> None:
        """Work out what a reply comes to: results, and files in the order in which they are written."""
        name, files, results = start["agent"], list[tuple[str, bytes]](), list[Plain]()
        allowed = self.agents[name].get("permissions", {}).get("tools", [])
        for call in reply.get("tool_calls", []):
            path = os.path.normpath(self.base / "agents" / name / call["args"].get("path", ""))
            may = (
                call["tool"] == "file_write"
                and call["tool"] in allowed
                and path.startswith(f"{self.base}/agents/{name}/workspace/")
            )
            if may:
                files.append((os.path.relpath(path, self.base), call["args"]["content"].encode()))
            output = "written" if may else "not allowed"
            results.append({"tool": call["tool"], "args": call["args"], "success": may, "output": output})
            if not any(own["index"] == len(results) - 1 for own in self.journal.of(name, "tool_finished")):
                self.journal.add("tool_finished", agent=name, index=len(results) - 1, tool=call["tool"], output=output)
        for update in reply.get("memory_updates", []):
            key = update["key"]
            if (
                key.isascii()
                and key[:1].isalnum()
                and len(key) <= 120
                and all(each.isalnum() or each in "_-." for each in key)
            ):
                memory = {"key": key, "value": update["value"], "timestamp": at, "agent": name}
                files.append((f"agents/{name}/memory/{key}.json", laid_out(memory)))
        for index, said in enumerate(reply.get("outbox_entries", [])):
            entry = {
                "id": self.entry_id(self.now, name, index), "tick": self.now, "agent": name,
                "kind": said["kind"], "payload": said["payload"],
                "tags": said.get("tags", []), "created_at": at,
            }  # fmt: skip
            files.append((f"agents/{name}/outbox/{self.now:08}_{entry['id']}.json", laid_out(entry)))
        self.end(start, spent, files, results)

    def end(
        self, start: Plain, spent: float, files: list[tuple[str, bytes]], results: list[Plain], failed: bool = False
    ) -> None:
        """Write a turn's files, its line in the ledger, and that it is committed."""
        name, state = start["agent"], start["state"]
        for path, raw in files:
            write(self.base / path, raw)
        status = "failed" if failed else "waiting" if results else "done"
        line = {
            "tick": self.now, "status": status, "turns": state["turns"] + 1,
            "credits": state["credits"] + spent,
            "read": state["read"] if failed else start["read"], "results": results,
        }  # fmt: skip
        lines = [*(old for old in self.ledger(name) if old["tick"] < self.now), line]
        write(self.base / f"agents/{name}/turns.jsonl", b"".join(json.dumps(each).encode() + b"\n" for each in lines))
        digests = [{"path": path, "sha256": sha256(raw).hexdigest()} for path, raw in files]
        self.journal.add("turn_committed", agent=name, status=status, files=digests)

    def expire(self) -> None:
        """Remove entries past the retention that everybody to whom they are new has been shown."""
        kept = self.org.get("retention_ticks", 1000)
        states = {name: (self.ledger(name) or [{"read": []}])[-1]["read"] for name in self.agents}
        gone = []
        for entry in (entry for author in self.agents for entry in self.entries(author)):
            if kept and entry["tick"] < self.now - kept and self.was_seen(entry, states):
                gone.append(f"agents/{entry['agent']}/outbox/{entry['tick']:08}_{entry['id']}.json")
        if gone:
            self.journal.add("entries_expired", files=gone)
            for path in gone:
                (self.base / path).unlink(missing_ok=True)

    def was_seen(self, entry: Plain, states: dict[str, list[str]]) -> bool:
        """Whether everybody who may read an entry that is new to it has read it."""
        for name in self.agents.keys() - {entry["agent"]}:
            reads = self.agents[name].get("permissions", {}).get("read_outboxes", [])
            may = "*" in reads or entry["agent"] in reads
            if may and self.is_new_to(name, entry) and self.key(entry) not in states[name]:
                return False
        return True


if __name__ == "__main__":
    sys.exit(Engine().main())
