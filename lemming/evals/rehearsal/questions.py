"""What was asked in a recorded tick, so that what is asked in its rehearsal can be held against it."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, first_number, turn_key
from lemming.kernel.journal.records import ModelFailed, ModelReplied
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.providers import Message, Request
from lemming.kernel.tick.edge import tried
from lemming.kernel.tick.fallback import entry_for
from lemming.kernel.tick.questions import question
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.loop import finish
from lemming.kernel.turn.on_record import from_record
from lemming.kernel.turn.parts import completed
from lemming.kernel.turn.values import Answer, TurnInputs
from lemming.timeline.record import RecordedTick
from lemming.timeline.retake import RecordedAnswers


class RecordedQuestions:
    """What was asked in a recorded tick, and what was answered. Safe to use from many threads.

    Questions are not in journals: turns are taken again to see them, each when one of it is first asked for.
    `base`: where files are that questions take along. `config`: what stands for the models that turns ask
    beside their agents' own.
    """

    def __init__(self, recorded: RecordedTick, base: OrgPath, config: Config) -> None:
        self.recorded, self._base, self._config = recorded, base, config
        self._asked: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()

    def at(self, agent: str, step: int) -> ModelReplied | ModelFailed | None:
        """Return what was answered to a turn's question number `step`, whatever it was; None: nothing."""
        return self.recorded.answers.get((agent, step))

    def answer_to(self, entry: ModelEntry, request: Request) -> ModelReplied | ModelFailed | None:
        """Return what was answered to the very same question at the same place; None when it was another."""
        key = turn_key(request.agent, request.step // NUMBERS_PER_TURN)
        with self._lock:
            if key not in self._asked:
                self._asked[key] = self._questions_of(key)
            asked = self._asked[key].get(request.step)
        is_same = asked is not None and asked == question_of(entry, request)
        return self.at(request.agent, request.step) if is_same else None

    def _questions_of(self, key: str) -> dict[int, str]:
        """Return what names each question of a recorded turn, by its number."""
        started = self.recorded.started.get(key)
        if started is None:
            return {}
        inputs = from_record(started, self.recorded.tick)
        noting = _Noting(self.recorded, inputs, self._base, self._config)
        plugins = tuple(self._config.org.plugins)
        tried(lambda: finish(Draft(inputs, noting), plugins=plugins))  # cut off, broken, of what is gone
        return noting.asked


class _Noting(RecordedAnswers):
    """The answers of one recorded turn, with a note of what was asked for each."""

    def __init__(self, recorded: RecordedTick, inputs: TurnInputs, base: OrgPath, config: Config) -> None:
        super().__init__(recorded, inputs.agent.name, inputs.turn)
        self._inputs, self._base, self._config = inputs, Path(base), config
        self.asked: dict[int, str] = {}

    def ask(
        self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Answer:
        """Return the recorded answer, and note what names its question."""
        inputs = self._inputs
        entry = entry_for(inputs, self._config, model)
        number = first_number(inputs.turn) + call
        request = question(inputs, entry, number, messages, schema)
        request = completed(request, entry, inputs, self._base, {})
        self.asked[number] = question_of(entry, request)
        return super().ask(call, messages, model, schema)


def question_of(entry: ModelEntry, request: Request) -> str:
    """Return what names a question, in hex: SHA-256 over all of it that can decide the answer.

    That is who is asked (provider, its options, the model) and what: messages, images, schema, temperature,
    seed, the length allowed, further fields. How long one waits, what it costs, and in which tick and for
    which agent it is asked do not count; the seed follows from those.
    """
    asked = {
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
        "extra": request.extra,
    }
    return sha256(compact(asked)).hexdigest()
