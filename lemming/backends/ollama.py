"""A local Ollama server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lemming.backends.http import HttpBackend
from lemming.errors import ProviderError, TimedOut, Unavailable
from lemming.providers import Reply, Request
from lemming.redaction import excerpt

if TYPE_CHECKING:
    from ollama import AsyncClient, ChatResponse


class OllamaProvider(HttpBackend["AsyncClient"]):
    """Asks Ollama at `host`, or where `OLLAMA_HOST` says, or at http://127.0.0.1:11434.

    `num_ctx` is the context in tokens (Ollama cuts longer prompts without a word), `keep_alive` how long
    the model stays in memory (such as "10m"), `extra` holds further model options (such as `top_k`).
    """

    name = "ollama"
    takes_schema = True

    def __init__(
        self,
        *,
        host: str | None = None,
        keep_alive: str | float | None = None,
        num_ctx: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._host, self._keep_alive = host, keep_alive
        self._options = {**({} if num_ctx is None else {"num_ctx": num_ctx}), **(extra or {})}

    def _connect(self, key: str) -> AsyncClient:
        from ollama import AsyncClient

        return AsyncClient(host=self._host, timeout=None)

    async def _ask(self, client: AsyncClient, request: Request) -> Reply:
        answer = await self._chat(client, request)
        text = answer.message.content
        return Reply(
            text=text or "",
            input_tokens=answer.prompt_eval_count,
            output_tokens=answer.eval_count,
            finish="length" if answer.done_reason == "length" else "stop",
            model=answer.model or request.model_name,
        )

    async def _chat(self, client: AsyncClient, request: Request) -> ChatResponse:
        import httpx
        import ollama

        options = {"num_predict": request.max_output_tokens, "seed": request.seed}
        temperature = {} if request.temperature is None else {"temperature": request.temperature}
        try:
            return await client.chat(
                model=request.model_name,
                messages=request.messages,
                format=request.schema,
                options={**options, **temperature, **self._options},
                keep_alive=self._keep_alive,
            )
        except ollama.ResponseError as error:
            raise self._error(request.model_name, error.status_code, {"error": error.error}) from error
        except httpx.TimeoutException as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except (httpx.TransportError, ConnectionError) as error:
            raise self._unreachable(request.model_name, error) from error
        except (TypeError, ValueError) as error:  # the SDK's way of saying that the body is no answer
            raise self._not_an_answer(request, error) from error

    def _not_an_answer(self, request: Request, error: Exception) -> ProviderError:
        message = f"not an answer: {excerpt(f'{type(error).__name__}: {error}')}"
        return Unavailable(message, where=f"{self.name} {request.model_name}")

    def _hint_for_unknown(self, model_name: str) -> str:
        return f"ollama pull {model_name}"
