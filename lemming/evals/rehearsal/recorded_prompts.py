"""Prompts of a recorded tick, to compare with the prompts of the rehearsal."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.journal_tools.turn_replay import RecordedAnswers
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, first_number, turn_key
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.providers import Message, Request, get_provider_class
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.live_chain import complete_request
from lemming.kernel.tick.model_requests import build_request, resolve_entry
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import finish_turn
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, TurnInputs


class RecordedPrompts:
    """Prompts and answers of a recorded tick. Thread-safe.

    Journals do not contain prompts: a turn is replayed at the first request for a prompt of the turn. `base`:
    folder of attached files. `config`: settings with the additional models of the turns.
    """

    def __init__(self, recorded: RecordedTick, base: OrgPath, config: Config) -> None:
        self.recorded, self._base, self._config = recorded, base, config
        self._prompt_hashes: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()

    def find_answer(self, agent: str, step: int) -> ModelReplied | ModelFailed | None:
        """Return the recorded answer to prompt number `step` of a turn, for any prompt, or None."""
        return self.recorded.answers.get((agent, step))

    def find_exact_answer(self, entry: ModelEntry, request: Request) -> ModelReplied | ModelFailed | None:
        """Return the recorded answer if the prompt at this position is unchanged, else None."""
        key = turn_key(request.agent, request.step // NUMBERS_PER_TURN)
        with self._lock:
            if key not in self._prompt_hashes:
                self._prompt_hashes[key] = self._hash_turn_prompts(key)
            recorded_hash = self._prompt_hashes[key].get(request.step)
        is_same = recorded_hash is not None and recorded_hash == hash_prompt(entry, request)
        return self.find_answer(request.agent, request.step) if is_same else None

    def _hash_turn_prompts(self, key: str) -> dict[int, str]:
        """Return the hash of each prompt of a recorded turn, by number."""
        started = self.recorded.started.get(key)
        if started is None:
            return {}
        inputs = from_record(started, self.recorded.tick)
        recorder = _PromptRecorder(self.recorded, inputs, self._base, self._config)
        plugins = tuple(self._config.org.plugins)
        isolate(
            lambda: finish_turn(TurnState(inputs, recorder), plugins=plugins)
        )  # the turn may be interrupted, broken, or refer to missing files
        return recorder.prompt_hashes


class _PromptRecorder(RecordedAnswers):
    """The recorded answers of one turn, with a hash of each prompt."""

    def __init__(self, recorded: RecordedTick, inputs: TurnInputs, base: OrgPath, config: Config) -> None:
        super().__init__(recorded, inputs.agent.name, inputs.turn)
        self._inputs, self._base, self._config = inputs, Path(base), config
        self.prompt_hashes: dict[int, str] = {}

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return the recorded answer and store the hash of the prompt."""
        inputs = self._inputs
        entry = resolve_entry(inputs, self._config, model)
        number = first_number(inputs.turn) + call
        request = build_request(inputs, entry, number, messages, schema)
        request = complete_request(request, entry, inputs, self._base)
        self.prompt_hashes[number] = hash_prompt(entry, request)
        return super().ask(call, messages, model, schema)


def hash_prompt(entry: ModelEntry, request: Request) -> str:
    """Return the SHA-256 (hex) of everything in a prompt that can influence the answer.

    Included are the model (provider, options, name), messages, images, schema, temperature, seed, output limit and
    extra fields, except those that tell a harness its folders. Not included are deadline, price, tick and agent; the
    seed already depends on tick and agent.
    """
    is_harness = get_provider_class(entry.provider).makes_many_calls
    content = {
        "provider": entry.provider,
        "options": entry.options,
        "model": request.model_name,
        "messages": request.messages,
        "images": [[image.media_type, image.base64] for image in request.images],
        "images_with": request.images_with if request.images else "",
        "schema": request.schema,
        "temperature": request.temperature,
        "seed": request.seed,
        "max_output_tokens": request.max_output_tokens,
        "extra": None if is_harness else request.extra,
    }
    return sha256(dump_compact(content)).hexdigest()
