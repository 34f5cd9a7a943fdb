"""Model backends behind one interface: what is asked (`Request`), what comes back (`Reply`), who answers.

A provider of your own needs one method, `call`. Those that ship are files of capabilities, imported when
first used. Failures are `ProviderError`s; anything else a provider raises becomes one at the edge in
`lemming.kernel.llm.calls`.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.errors import (
    AnswerTooLarge,
    ConfigError,
    ContractError,
    LemmingError,
    ProviderError,
    UnknownModel,
)
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.redaction.secrets import name_variables, redact
from lemming.kernel.files.documents import value_of
from lemming.kernel.plugins.capabilities import missing_for_provider
from lemming.kernel.plugins.catalogue import Catalogue
from lemming.kernel.plugins.errors import place_of
from lemming.kernel.plugins.registry import offered, register
from lemming.kernel.plugins.shipped import CHANNELS, PROVIDERS

Message = dict[str, Any]
"""`{"role": "system" | "user" | "assistant", "content": text}`; more for backends that take tools:
docs/AGENT_GUIDE.md, "Tools that a backend calls itself"."""

Finish = Literal["stop", "length", "refusal", "too_large", "failed"]


class Image(NamedTuple):
    """A picture for a model: its media type, and the bytes in base64."""

    media_type: str
    base64: str


class Request(NamedTuple):
    """One question to a model. `schema` is the JSON Schema the answer should satisfy, if any.

    `extra` are further fields in the backend's own words, such as `top_p`. `without` names what is to be left
    out because the server does not take it: the keys of `INSTEAD` of `lemming.capabilities.hosted.refusals`.
    `images` belong to the message whose text begins with `images_with`. `turn_s` is the time left to the
    turn, in which it waits for room too.
    """

    model_name: str
    messages: list[Message]
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    max_output_tokens: int = 2048
    seed: int = 0
    deadline_s: float = 120.0
    agent: str = ""
    tick: int = 0
    step: int = 0
    extra: dict[str, Any] | None = None
    without: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    images_with: str = ""
    turn_s: float = math.inf


class Reply(NamedTuple):
    """One answer and what it used. Token counts are None when the backend did not say.

    `input_tokens` includes `cached_tokens`, and the `written_tokens` that were put into a cache. `finish` is
    "length" when the answer was cut, "too_large" when it was thrown away, "failed" when it was an error of
    the provider that was charged, whose words are the text. `at` is when it came, for answers out of a
    recording; empty: now. `batched`: it came in a batch, at the price of one. `key`: the model key
    that gave it, for recorded answers of a fallback.
    `waited_s` is how long the call waited for room before it was made. `earlier`: why the attempts before it
    failed. `calls`: tools that the model called, `{"id", "tool", "args"}`; args that are not JSON stay text.
    `thinking`: what it thought first, for people. `kept`: JSON that the backend wants to see again, with the
    answer, in the same turn. `rest_s`: how long the provider says that it takes no
    further calls of this model.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish: Finish = "stop"
    model: str = ""
    request_id: str = ""
    at: str = ""
    batched: bool = False
    key: str = ""
    waited_s: float = 0.0
    earlier: tuple[LemmingError, ...] = ()
    calls: tuple[dict[str, Any], ...] = ()
    thinking: str = ""
    kept: Any = None
    written_tokens: int | None = None
    rest_s: float = 0.0


def require_reply(finish: str, text: str = "") -> None:
    """Raise when an answer, by how it ended, holds no reply.

    It was thrown away, it is a refusal, or it is the provider's error, whose words are its text.
    """
    if finish == "too_large":
        raise AnswerTooLarge("it was not read to its end, and is charged as max_output_tokens")
    if finish == "failed":
        raise ProviderError(text or "the provider told of an error")
    if finish == "refusal":
        raise ContractError("the model refused to answer")


class LLMProvider(ABC):
    """A model backend. `call` is all that a provider must have."""

    takes_schema = False
    """Whether the backend constrains its answer to `Request.schema`."""

    takes_tools = False
    """Whether the backend takes tools by their schemas, and answers with calls (`Message`)."""

    takes_images = False
    """Whether the backend passes `Request.images` on."""

    prefers_tools = False
    """Whether it does where the model's entry does not say: `tools` in `config/models.json`."""

    writes_contract = False
    """Whether its replies are written beforehand, with the contract's four keys: it is asked for these where
    the entry's `prompt` does not say."""

    is_person = False
    """Whether a person answers, so that the engine never calls."""

    is_channel = False
    """Whether it stands for a channel: something outside that messages come from and go to. Never called."""

    context_tokens = 128_000
    """The longest prompt and answer together, in tokens, where the model's entry does not say."""

    keeps_deadline = False
    """Whether `complete` gives up at `Request.deadline_s` by itself. One that does not is run on a thread
    of its own, which is left behind when time is up."""

    max_concurrent: int | None = None
    """Calls that the backend works on at once, where the entry's `max_concurrent` does not say; None: as many
    as there are turns at once. Others wait for room before their deadline begins."""

    leaves_out = False
    """Whether requests are sent without what `Request.without` names, and refusals say what to leave out."""

    stopping: threading.Event | None = None
    """Set once the engine is to end, where an engine has made it. Who bills for nothing may break off a call
    then, and raise `Unavailable`: nothing is recorded, and the next run asks again."""

    pause: Callable[[float], object] = staticmethod(time.sleep)
    """How to let seconds pass. In tests under `lemming.testing.SkippingClock` that takes no time."""

    can_be_down = True
    """Whether the backend may be out of order for a while, and is then left alone by a circuit breaker."""

    @abstractmethod
    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        """Return the model's answer as text. `kwargs` holds the other fields of `Request`.

        Raise a `ProviderError` to say why there is none and whether asking again may help.
        """

    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage. Override it where the backend reports usage."""
        rest = {name: value for name, value in request._asdict().items() if name not in _NAMED}
        del rest["without"]
        further = rest.pop("extra") or {}
        text = self.call(request.model_name, request.messages, request.temperature, **rest, **further)
        return Reply(text=text, model=request.model_name)

    def complete_heard(self, request: Request, hear: Callable[[str], object]) -> Reply:
        """Return the answer, and have its text heard piece by piece as it comes, where the backend can."""
        return self.complete(request)

    def to_body(self, request: Request) -> dict[str, Any] | None:
        """Return a request as its server would be sent it; None where it is no JSON object."""
        return None

    def count_tokens(self, request: Request) -> int | None:
        """Return how many tokens of input the backend counts in a request; None where it counts none.

        Nothing is answered, and nothing is charged. Raises a `ProviderError` when the backend is not reached.
        """
        return None

    def count_texts(self, model_name: str, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text by the model's own tokenizer; None where it cannot be asked.

        Raises as `count_tokens`.
        """
        return None


class Backend(LLMProvider):
    """A provider that answers with usage: `complete` is the real method and `call` its short form."""

    takes_extra = False
    """Whether `Request.extra` goes to the server, as further fields of what it is asked."""

    @abstractmethod
    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage."""

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        """Return the answer's text. `kwargs` are fields of `Request`; others go to the server as they are.

        Raises `TypeError` for others where the backend has no place for them.
        """
        further = {name: value for name, value in kwargs.items() if name not in Request._fields}
        if further and not self.takes_extra:
            names, known = ", ".join(map(repr, further)), ", ".join(sorted({*Request._fields} - _NAMED))
            raise TypeError(f"{type(self).__name__}.call() does not take {names}; it takes: {known}")
        fields = {name: value for name, value in kwargs.items() if name not in further}
        if further:
            fields["extra"] = {**(fields.get("extra") or {}), **further}
        return self.complete(Request(model_name, messages, temperature, **fields)).text


_MODELS_FILE = "config/models.json"
_NAMED = frozenset({"model_name", "messages", "temperature"})

_BUILT_IN = {
    "human": "lemming.kernel.llm.human:HumanProvider",
    **PROVIDERS,
}
_LAZY = {
    "OpenAIProvider": _BUILT_IN["openai"],
    "AnthropicProvider": _BUILT_IN["anthropic"],
    "OllamaProvider": _BUILT_IN["ollama"],
    "RetryingLLMProvider": "lemming.kernel.llm.retrying:RetryingLLMProvider",
}


def register_provider(name: str, provider: type[LLMProvider]) -> None:
    """Make a provider available to `config/models.json` under a name, or a newer version of it.

    While a plugin is loaded it is for the organisations that name the plugin, else for all of the process.
    Raises `ConfigError` for what is no provider, and for the name of one that ships.
    """
    if not (inspect.isclass(provider) and issubclass(provider, LLMProvider)):
        raise ConfigError(f"provider {name!r} must be a class derived from LLMProvider, not {provider!r}")
    try:
        register("provider", name, provider, defined_by=provider, shipped=_BUILT_IN)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def provider_names(plugins: Sequence[str] | None = None) -> list[str]:
    """Return every name that `config/models.json` may use, sorted.

    With `plugins`, those of an organisation that names these plugins; so it is with the functions below.
    """
    return list(providers_of(plugins))


def providers_of(plugins: Sequence[str] | None) -> Catalogue[type[LLMProvider]]:
    """Return the providers by name: the very same value as long as nobody registers another."""
    return offered("provider", None if plugins is None else tuple(plugins), _with_shipped)


def _with_shipped(registered: Mapping[str, type[LLMProvider]]) -> Catalogue[type[LLMProvider]]:
    return Catalogue(_BUILT_IN, registered, lambda provider: provider)


def provider_class(name: str, plugins: Sequence[str] | None = None) -> type[LLMProvider]:
    """Return the class registered under a name; raise `UnknownModel` with the nearest name."""
    if why := missing_for_provider(name):
        raise UnknownModel(why, where=_MODELS_FILE, hint="install lemming-engine again")
    providers = providers_of(plugins)
    if name in providers:
        return providers[name]
    names = list(providers)
    hint = nearest(name, names) or f"providers: {', '.join(names)}"
    raise UnknownModel(f'no provider "{name}"', where=_MODELS_FILE, hint=hint)


def is_person(name: str, plugins: Sequence[str] | None = None) -> bool:
    """Return whether the provider stands for a person, so that no call is ever made."""
    if name in _BUILT_IN:  # not loaded for the question
        return name == "human"
    found = providers_of(plugins).get(name)
    return found is not None and found.is_person


def is_channel(name: str, plugins: Sequence[str] | None = None) -> bool:
    """Return whether the provider stands for a channel, so that no call is ever made."""
    if name in _BUILT_IN:  # not loaded for the question
        return name in CHANNELS
    found = providers_of(plugins).get(name)
    return found is not None and found.is_channel


def option_names(name: str) -> list[str]:
    """Return what may stand in `options` of a provider that ships, or that the process knows.

    Raises `UnknownModel` for a name that is none.
    """
    return _options_of(provider_class(name))


def _options_of(provider: type[LLMProvider]) -> list[str]:
    return [option for option in _signature_of(provider).parameters if option != "base"]


@lru_cache(64)
def _signature_of(provider: type[LLMProvider]) -> inspect.Signature:
    """Return what a constructor takes; an annotation that only a type checker understands stays a text."""
    try:
        return inspect.signature(provider, eval_str=True)
    except NameError:
        return inspect.signature(provider)


def make_provider(
    name: str, options: dict[str, Any], *, base: Path | None = None, plugins: Sequence[str] | None = None
) -> LLMProvider:
    """Return a provider built with the options of its entry in `config/models.json`.

    A provider whose constructor has a parameter `base` also gets the organisation's folder. Raises
    `UnknownModel` for a name that no provider has, and `ConfigError` for an option it does not take.
    """
    name_variables(options, _MODELS_FILE)
    provider = provider_class(name, plugins)
    signature, known = _signature_of(provider), _options_of(provider)
    if "api_key" in options:
        hint = 'put the key into an environment variable and its name into "api_key_env"'
        raise ConfigError(f"provider {name}: a key must not be in a file", where=_MODELS_FILE, hint=hint)
    given = {"base": base} if "base" in signature.parameters and base is not None else {}
    try:
        if "base" in options:
            raise TypeError("base is given")
        signature.bind(**options, **given)
    except TypeError as error:
        unknown = next((option for option in options if option not in known), "")
        why = f'no option "{unknown}"' if unknown else error
        hint = nearest(unknown, known) or f"options of {name}: {', '.join(known) or 'none'}"
        raise ConfigError(f"provider {name}: {why}", where=_MODELS_FILE, hint=hint) from error
    _check_types(name, provider, options)
    try:
        return provider(**options, **given)
    except LemmingError:
        raise
    except Exception as error:  # the edge to a provider of somebody's own
        why = redact(f"provider {name} cannot be made: {type(error).__name__}: {error}")
        raise ConfigError(why, where=_MODELS_FILE, hint=redact(f"raised at {place_of(error)}")) from error


def _check_types(name: str, provider: type[LLMProvider], options: dict[str, Any]) -> None:
    """Raise `ConfigError` for an option whose value does not fit the constructor's annotation."""
    parameters = _signature_of(provider).parameters
    for option in options.keys() & parameters.keys():
        annotation = parameters[option].annotation
        kind = Any if annotation is inspect.Parameter.empty or isinstance(annotation, str) else annotation
        try:
            value_of(kind, options[option])
        except TypeError:  # a class of the plugin's own
            continue
        except ValueError as error:
            raise ConfigError(f'provider {name}: option "{option}": {error}', where=_MODELS_FILE) from error


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return _load(_LAZY[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
