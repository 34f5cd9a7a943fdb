"""Model backends behind one interface: `Request`, `Reply` and the providers that answer.

A custom provider needs one method, `call`. Shipped providers are files of capabilities, imported on first
use. Failures are `ProviderError`s; any other exception of a provider is converted in
`lemming.kernel.llm.model_call`.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.aliases import accept_old_names, find_renamed
from lemming.kernel.base.errors import (
    AnswerTooLarge,
    ConfigError,
    ContractError,
    LemmingError,
    Problem,
    ProviderError,
    RequestRejected,
    UnknownModel,
)
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.redaction.secrets import redact, register_secret_variables
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.plugins.capability_loader import missing_for_provider
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.plugins.capability_table import CHANNELS, PROVIDERS
from lemming.kernel.plugins.plugin_registry import Catalogue, collect_items, register
from lemming.kernel.plugins.provider_errors import locate_error

Message = dict[str, Any]
"""`{"role": "system" | "user" | "assistant", "content": text}`; more for backends that take tools:
docs/AGENT_GUIDE.md, "Tools that a backend calls itself"."""

Finish = Literal["stop", "length", "refusal", "too_large", "failed"]


class Image(NamedTuple):
    """A picture for a model: its media type, and its bytes in base64."""

    media_type: str
    base64: str


class Request(NamedTuple):
    """A request to a model. `schema` is the JSON Schema of the answer, if any.

    `extra` holds further fields in the backend's own names, such as `top_p`. `without` names fields to leave
    out because the server rejects them: keys of `FALLBACKS` in
    `lemming.capabilities.hosted_models.rejected_fields`. `images` belong to the message with a text beginning
    with `images_with`. `turn_s`: seconds left to the turn, including waits for capacity.
    `max_cost_usd`: a limit in dollars below that of the model's entry, or None.
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
    max_cost_usd: float | None = None


class Reply(NamedTuple):
    """An answer and its usage. Token counts are None if the backend reports none.

    `input_tokens` includes `cached_tokens`, and the `written_tokens` put into a cache. `finish` is "length"
    for a truncated answer, "too_large" for a discarded answer, "failed" for a charged error of the provider
    with its message as text. `at`: time of a recorded answer, empty for a live answer. `batched`: the answer
    came in a batch, at the batch price. `key`: the model key of a recorded fallback answer. `waited_s`:
    seconds the call waited for capacity. `earlier`: errors of earlier attempts. `calls`: tool calls of the
    model, `{"id", "tool", "args"}`; args that are not JSON stay text. `thinking`: the model's reasoning, for
    people. `kept`: JSON the backend receives back with the answer in the same turn. `rest_s`: seconds during
    which the provider accepts no further calls of this model. `acted`: the backend may have acted outside, so no
    correction of the answer is asked for.
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
    acted: bool = False


def require_usable_finish(finish: str, text: str = "") -> None:
    """Raise an error if the finish of an answer means that the answer holds no reply.

    Such an answer is discarded, refused, or an error of the provider with its message as text.
    """
    if finish == "too_large":
        raise AnswerTooLarge("the answer was not read to its end and is charged as max_output_tokens")
    if finish == "failed":
        raise ProviderError(text or "the provider reported an error")
    if finish == "refusal":
        raise ContractError("the model refused to answer")


@accept_old_names
class LLMProvider(ABC):
    """A model backend. A provider must implement only `call`."""

    takes_schema = False
    """True if the backend constrains its answer to `Request.schema`."""

    takes_tools = False
    """True if the backend takes tools by their schemas and answers with calls (`Message`)."""

    takes_images = False
    """True if the backend sends `Request.images`."""

    prefers_tools = False
    """Default of `tools` in `config/models.json`."""

    writes_contract = False
    """True if replies have the contract's four keys, which the default prompt of an entry then asks for."""

    makes_many_calls = False
    """True if one call runs a program that asks models any number of times: only `max_cost_usd` bounds its cost."""

    is_person = False
    """True if a person answers, so the engine never calls."""

    is_channel = False
    """True for a channel: an outside source and destination of messages. Never called."""

    context_tokens = 128_000
    """The longest prompt and answer together, in tokens, where the model's entry does not say."""

    keeps_deadline = False
    """True if `complete` itself stops at `Request.deadline_s`. Other backends run on a thread of their own,
    which is abandoned at the deadline."""

    max_concurrent: int | None = None
    """Concurrent calls of the backend, unless the entry has `max_concurrent`; None: as many as parallel
    turns. A waiting call's deadline has not begun."""

    leaves_out = False
    """True if requests are sent without the fields in `Request.without`, and rejections name them."""

    stopping: threading.Event | None = None
    """Set when an engine is to end. A free backend may then break off a call and raise `Unavailable`: nothing
    is recorded, and the next run asks again."""

    pause: Callable[[float], object] = staticmethod(time.sleep)
    """Waits for seconds. In tests with `lemming.testing.SkippingClock` it takes no time."""

    can_be_down = True
    """True if the backend may fail for a while and is then protected by a circuit breaker."""

    acts_outside = False
    """True if a call may act outside, as a program may: it is announced in the journal, and made at most once."""

    remark = ""
    """A warning about the entry for people, with a fix; empty without one."""

    @abstractmethod
    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        """Return the model's answer as text. `kwargs` holds the other fields of `Request`.

        Raise a `ProviderError` for a failed call; the error class tells the engine if a retry may help.
        """

    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage. Override this method if the backend reports usage."""
        fields = {name: value for name, value in request._asdict().items() if name not in _NAMED}
        del fields["without"]
        extra_fields = fields.pop("extra") or {}
        text = self.call(request.model_name, request.messages, request.temperature, **fields, **extra_fields)
        return Reply(text=text, model=request.model_name)

    def complete_streaming(self, request: Request, on_delta: Callable[[str], object]) -> Reply:
        """Return the answer, passing its text to `on_delta` piece by piece if the backend can stream."""
        return self.complete(request)

    def to_body(self, request: Request) -> dict[str, Any] | None:
        """Return the JSON body of the request to the server, or None without a JSON body."""
        return None


class Backend(LLMProvider):
    """A provider with usage: `complete` is the real method and `call` its short form."""

    takes_extra = False
    """True if `Request.extra` goes to the server as further fields of the body."""

    @abstractmethod
    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage."""

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        """Return the answer's text.

        `kwargs` are fields of `Request`; unknown names go to the server unchanged.

        Raises `TypeError` for unknown names if the backend takes no extra fields.
        """
        extra_fields = {name: value for name, value in kwargs.items() if name not in Request._fields}
        if extra_fields and not self.takes_extra:
            names, known_names = (", ".join(map(repr, extra_fields)), ", ".join(sorted({*Request._fields} - _NAMED)))
            raise TypeError(f"{type(self).__name__}.call() does not take {names}; it takes: {known_names}")
        fields = {name: value for name, value in kwargs.items() if name not in extra_fields}
        if extra_fields:
            fields["extra"] = {**(fields.get("extra") or {}), **extra_fields}
        return self.complete(Request(model_name, messages, temperature, **fields)).text


class HumanProvider(Backend):
    """Placeholder for a person in `config/models.json`."""

    is_person = True
    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        """Raise `RequestRejected`: a person cannot be called through this interface."""
        hint = "write a person's entries with `lemming send`"
        raise RequestRejected("a person cannot be called like a model", where=request.agent, hint=hint)


_MODELS_FILE = "config/models.json"
_NAMED = frozenset({"model_name", "messages", "temperature"})

_BUILT_IN = {"human": "lemming.kernel.providers:HumanProvider", **PROVIDERS}
_LAZY = {
    "OpenAIProvider": _BUILT_IN["openai"],
    "AnthropicProvider": _BUILT_IN["anthropic"],
    "OllamaProvider": _BUILT_IN["ollama"],
    "RetryingLLMProvider": "lemming.kernel.llm.retrying_provider:RetryingLLMProvider",
}


def register_provider(name: str, provider: type[LLMProvider]) -> None:
    """Register a provider, or a newer version, under a name for `config/models.json`.

    While a plugin is loading, the provider is available to organisations with this plugin, otherwise to the
    whole process. Raises `ConfigError` for an object that is not a provider, and for the name of a shipped
    provider.
    """
    if not (inspect.isclass(provider) and issubclass(provider, LLMProvider)):
        raise ConfigError(f"provider {name!r} must be a class derived from LLMProvider, got {provider!r}")
    try:
        register("provider", name, provider, defined_by=provider, shipped=_BUILT_IN)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def provider_names(plugins: Sequence[str] | None = None) -> list[str]:
    """Return every provider name allowed in `config/models.json`, sorted.

    With `plugins`, only providers available to an organisation with the plugins; the same holds for the
    functions below.
    """
    return list(available_providers(plugins))


def available_providers(plugins: Sequence[str] | None) -> Catalogue[type[LLMProvider]]:
    """Return the providers by name; the same object until another provider is registered."""
    return collect_items(
        "provider",
        None if plugins is None else tuple(plugins),
        lambda registered: Catalogue(_BUILT_IN, registered, lambda provider: provider),
    )


def get_provider_class(name: str, plugins: Sequence[str] | None = None) -> type[LLMProvider]:
    """Return the class registered under a name. Raises `UnknownModel` with the most similar name."""
    if missing := missing_for_provider(name):
        raise UnknownModel(missing, where=_MODELS_FILE, hint="install lemming-engine again")
    providers = available_providers(plugins)
    if name in providers:
        return providers[name]
    names = list(providers)
    hint = did_you_mean(name, names) or f"use one of the providers: {', '.join(names)}"
    raise UnknownModel(f'provider "{name}" does not exist', where=_MODELS_FILE, hint=hint)


def is_person(name: str, plugins: Sequence[str] | None = None) -> bool:
    """Return True if the provider stands for a person, so no call is made."""
    if name in _BUILT_IN:  # not loaded for the question
        return name == "human"
    provider = available_providers(plugins).get(name)
    return provider is not None and provider.is_person


def is_channel(name: str, plugins: Sequence[str] | None = None) -> bool:
    """Return True if the provider stands for a channel, so no call is made."""
    if name in _BUILT_IN:  # not loaded for the question
        return name in CHANNELS
    provider = available_providers(plugins).get(name)
    return provider is not None and provider.is_channel


def list_option_names(name: str) -> list[str]:
    """Return the valid names in `options` of a provider. Raises `UnknownModel` for an unknown name."""
    return [option for option in _constructor_signature(get_provider_class(name)).parameters if option != "base"]


@lru_cache(64)
def _constructor_signature(provider: type[LLMProvider]) -> inspect.Signature:
    """Return a constructor's signature; an annotation that cannot be evaluated stays a text."""
    try:
        return inspect.signature(provider, eval_str=True)
    except NameError:
        return inspect.signature(provider)


def make_provider(
    name: str, options: dict[str, Any], *, base: Path | None = None, plugins: Sequence[str] | None = None
) -> LLMProvider:
    """Return a provider built with the options of its entry in `config/models.json`.

    A provider with a constructor parameter `base` also gets the organisation's folder. Raises `UnknownModel`
    for an unknown provider, and `ConfigError` for an unknown option.
    """
    register_secret_variables(options, _MODELS_FILE)
    provider = get_provider_class(name, plugins)
    signature = _constructor_signature(provider)
    known_options = [option for option in signature.parameters if option != "base"]
    if "api_key" in options:
        hint = 'put the key into an environment variable and its name into "api_key_env"'
        raise _option_error(f"provider {name}: a key must not be in a file", "api_key", hint)
    base_option = {"base": base} if "base" in signature.parameters and base is not None else {}
    try:
        if "base" in options:
            raise TypeError("base is given")
        signature.bind(**options, **base_option)
    except TypeError as error:
        unknown = next((option for option in options if option not in known_options), "")
        message = f'option "{unknown}" does not exist' if unknown else error
        usual_hint = f"use the options of {name}: {', '.join(known_options) or 'none'}"
        hint = did_you_mean(unknown, known_options) or usual_hint
        raise _option_error(f"provider {name}: {message}", unknown, hint) from error
    for option in options.keys() & signature.parameters.keys():
        annotation = signature.parameters[option].annotation
        kind = Any if annotation is inspect.Parameter.empty or isinstance(annotation, str) else annotation
        try:
            to_value(kind, options[option])
        except TypeError:  # a class of the plugin's own
            continue
        except ValueError as error:
            raise _option_error(f'provider {name}: option "{option}": {error}', option) from error
    try:
        return provider(**options, **base_option)
    except LemmingError:
        raise
    except Exception as error:  # error boundary of a custom provider
        message = redact(f"provider {name} cannot be created: {type(error).__name__}: {error}")
        raise ConfigError(message, where=_MODELS_FILE, hint=redact(f"see {locate_error(error)}")) from error


def _option_error(message: str, option: str, hint: str = "") -> ConfigError:
    """Return the error of an option, with its place in the entry of the model."""
    pointer = f"/options/{option}" if option else "/options"
    problem = Problem(message, _MODELS_FILE, pointer=pointer, hint=hint)
    return ConfigError(message, where=_MODELS_FILE, hint=hint, problems=(problem,))


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return load_object(_LAZY[name])
    return find_renamed(__name__, name)
