"""Local backends whose models an expert server runs. It speaks the Hub's inference API.

A request has the arguments of the task, the answer has the adapted result with its files.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import httpx

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.http_errors import reply_timeout, retry_after
from jarvis_agent.backends.local import CALL_OPTIONS, FileBackend, LocalBackend
from jarvis_agent.backends.outputs.adapters import Result
from jarvis_agent.core.content import decode_base64
from jarvis_agent.core.errors import (
    AttemptTimeoutError,
    BadInputError,
    ConfigError,
    ExpertError,
    InputError,
    JarvisError,
    OutOfMemoryError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    describe_error,
)
from jarvis_agent.core.notes import read_notes
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Candidate, Resource

STATUSES: dict[type[JarvisError], int] = {
    BadInputError: 400,
    InputError: 400,
    UnsupportedError: 422,
    ConfigError: 422,
    RateLimitedError: 429,
    TransientError: 503,
    AttemptTimeoutError: 504,
    OutOfMemoryError: 507,
}
"""How an error crosses: as the status of its class, or of the nearest parent; 500 is an ExpertError."""

_ERRORS = {status: kind for kind, status in reversed(STATUSES.items())}

_MODEL = "serve-multiplexed-model-id"
"""The header in which Ray Serve reads the model, to find a replica that has it."""

_ADVICE = {
    401: "set JARVIS_EXPERTS_KEY to one of its API keys",
    413: "its JARVIS_MAX_FILE_BYTES is the limit",
}

_CONNECT_S = 5.0

_tls = cache(ssl.create_default_context)


@dataclass(frozen=True, slots=True)
class ExpertServer:
    """An expert server at an address."""

    address: str
    key: str | None = field(default=None, repr=False)

    async def run(self, call: Call) -> Result:
        """Run a call, and cancel it with its caller.

        TransientError: the server cannot be reached, was lost, or silent for too long. JarvisError: the call
        failed there, or was refused.
        """
        model, seconds = call.candidate, reply_timeout(call.settings)
        name = f"{model.id}@{model.revision}" if model.revision else model.id
        url = f"{self.address}/models/{quote(name)}/pipeline/{call.spec.name}"
        body, mime, query = await asyncio.to_thread(write_request, call)
        headers = {"Content-Type": mime, _MODEL: quote(name, safe="/@"), **self._headers()}
        limits = httpx.Timeout(seconds, connect=_CONNECT_S)
        try:
            async with httpx.AsyncClient(verify=_tls(), timeout=limits, trust_env=False) as client:
                response = await client.post(url, content=body, params=query, headers=headers)
        except httpx.HTTPError as error:
            raise self._failure(error, seconds) from error
        call.trace["endpoint"] = self.address
        if not response.is_success:
            raise self._refusal(response)
        return await asyncio.to_thread(read_result, response.content, call)

    def status(self) -> dict[str, Any]:
        """The answer to `GET /models`. Blocks. Raises as `run`."""
        try:
            response = httpx.get(
                f"{self.address}/models", headers=self._headers(), timeout=_CONNECT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            raise self._failure(error, _CONNECT_S) from error
        if not response.is_success:
            raise self._refusal(response)
        status: dict[str, Any] = response.json()
        return status

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def _failure(self, error: httpx.HTTPError, seconds: float) -> TransientError:
        if not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            what = f"the expert server {self.address} was lost, or silent for {seconds:g} s"
            return TransientError(what, detail=describe_error(error), advice="if it is busy, try again later")
        port = httpx.URL(self.address).port
        option = f" --port {port}" if port else ""
        return TransientError(
            f"the expert server {self.address} cannot be reached",
            detail=error,
            advice=f"start it with `jarvis experts{option}`, or unset JARVIS_EXPERTS",
        )

    def _refusal(self, response: httpx.Response) -> JarvisError:
        try:
            body: Any = response.json()
        except ValueError:
            body = None
        fields = body if isinstance(body, Mapping) else {}
        status, message = response.status_code, fields.get("error")
        if status == 429:
            return RateLimitedError(str(message), retry_after(response.headers))
        if isinstance(message, str):  # the model failed, or cannot be called so
            failed = f"the expert server {self.address} failed: {message}"
            return _ERRORS[status](message) if status in _ERRORS else ExpertError(failed)
        detail = fields.get("detail") or response.reason_phrase
        what = f"the expert server {self.address} answers {status}: {detail}"
        if status >= 500:
            return TransientError(what)
        return ConfigError(what, advice=_ADVICE.get(status, "check JARVIS_EXPERTS"))


class RemoteBackend:
    """A local backend whose models an expert server runs."""

    local: ClassVar[bool] = True

    def __init__(self, backend: LocalBackend, server: ExpertServer) -> None:
        self.name = backend.name
        self._backend, self._server = backend, server

    def server_for(self, candidate: Candidate) -> ExpertServer | None:
        """The server; None: this process runs what only its user has, a folder or a description."""
        path = candidate.path
        is_cached = path is None or any(part.startswith("models--") for part in path.parts)
        is_described = candidate.source == "registered" and bool(candidate.metadata.keys() - CALL_OPTIONS)
        is_own = isinstance(self._backend, FileBackend) and (not is_cached or is_described)
        return None if is_own else self._server

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """As LocalBackend. The server tells what it lacks."""
        if self.server_for(candidate):
            return self._backend.mismatch(spec, candidate)
        return self._backend.unsupported_reason(spec, candidate)

    async def run(self, call: Call) -> Any:
        """The result of a call by the server, or the raw output of a model that only this process has."""
        server = self.server_for(call.candidate)
        return await server.run(call) if server else await self._backend.run(call)

    async def close(self) -> None:
        await self._backend.close()


def write_request(call: Call) -> tuple[bytes, str, dict[str, str]]:
    """The body of a request, its media type, and its query. Blocks while it reads files.

    A single file is sent as it is, with the parameters in the query; all else is JSON, files as data URLs.
    """
    inputs = {name: value for name, value in call.inputs.items() if value is not None}
    options = call.candidate.metadata.get("options") or {}
    parameters = {**options, "seed": call.settings.seed, "return_files": True}
    match list(inputs.values()):
        case [Resource(path=Path() as path, mime=str() as mime)] if "json" not in mime:
            return path.read_bytes(), mime, {"parameters": json.dumps(parameters)}
    body = json.dumps({"inputs": inputs, "parameters": parameters}, default=_as_json)
    return body.encode(), "application/json", {}


def _as_json(value: Any) -> Any:
    """What stands for a file, or for a value that JSON does not know."""
    if isinstance(value, Resource):
        if value.path is None:
            return value.as_text() if value.data is None else value.data
        content = base64.b64encode(value.path.read_bytes()).decode()
        return f"data:{value.mime or ''};name={quote(value.path.name, safe='')};base64,{content}"
    raise UnsupportedError(f"a {type(value).__name__} cannot be sent to the expert server")


def read_result(reply: bytes, call: Call) -> Result:
    """The result in an answer. Its files are written; no other file is opened. Blocks."""
    try:
        answer = json.loads(reply)
        places: dict[str, str] = {}
        for row in answer["resources"]:
            if content := row.pop("content", None):
                path = call.new_path(Path(row["path"]).suffix)
                path.write_bytes(decode_base64(content))
                places[row["path"]] = str(path)
        rows = [
            {**row, "path": row["path"] if row["path"] in places else None} for row in answer["resources"]
        ]
        placed = map_texts({**answer, "resources": rows}, lambda text: places.get(text, text))
        call.notes.extend(read_notes(placed["notes"]))
        return Result(placed["output"], [Resource(**row) for row in placed["resources"]])
    except (LookupError, TypeError, AttributeError, ValueError, InputError) as error:
        raise UnsupportedError(f"the answer for {call.candidate.id} is no result", detail=error) from error
    finally:
        call.cleanup()


def find_server(settings: Settings) -> ExpertServer | None:
    """The server of the settings; None: this process runs the models."""
    if settings.experts is None:
        return None
    key = settings.experts_key.get_secret_value() if settings.experts_key else None
    return ExpertServer(settings.experts, key)
