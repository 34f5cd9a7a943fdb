"""Images beside the text of a message, in the form of each API. Pure: bytes in, JSON out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from lemming.providers import Image, Request

Form = Literal["chat", "responses", "anthropic", "ollama"]


def _address(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.base64}"


_PARTS: dict[Form, tuple[str, Callable[[Image], dict[str, Any]]]] = {
    "chat": ("text", lambda image: {"type": "image_url", "image_url": {"url": _address(image)}}),
    "responses": ("input_text", lambda image: {"type": "input_image", "image_url": _address(image)}),
    "anthropic": (
        "text",
        lambda image: {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": image.base64},
        },
    ),
}


def with_images(messages: list[Any], request: Request, form: Form) -> list[Any]:
    """Return the messages of a request, its images in the first whose text begins with `request.images_with`.

    The very same list where there are none.
    """
    if not request.images:
        return messages
    place = next(
        (n for n, it in enumerate(messages) if str(it.get("content", "")).startswith(request.images_with)),
        None,
    )
    if place is None:
        return messages
    message = messages[place]
    if form == "ollama":
        seen = {**message, "images": [image.base64 for image in request.images]}
    else:
        kind, part = _PARTS[form]
        text = {"type": kind, "text": message["content"]}
        seen = {**message, "content": [text, *map(part, request.images)]}
    return [*messages[:place], seen, *messages[place + 1 :]]
