"""When a question to a model is the very same, so that a recorded answer stands for asking it. Pure."""

from __future__ import annotations

from hashlib import sha256

from lemming.base.jsontext import compact
from lemming.org.models import ModelEntry
from lemming.providers import Request


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
