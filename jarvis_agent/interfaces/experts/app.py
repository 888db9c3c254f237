"""The expert server: answers requests of the Hub's inference API with the local models of this process."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse, Response

from jarvis_agent import __version__
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.pool import Key, ModelPool
from jarvis_agent.backends.registry import Factory, make_backends
from jarvis_agent.backends.remote_experts import STATUSES
from jarvis_agent.core import errors
from jarvis_agent.core.concurrency import MAX_PARALLEL
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.common import metrics
from jarvis_agent.interfaces.common.access import add_middleware
from jarvis_agent.interfaces.common.limits import MAX_JSON_BYTES, RunLimits, unless_disconnected
from jarvis_agent.interfaces.experts import hub_api
from jarvis_agent.interfaces.experts.hub_api import Fields, InferenceRequest
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.selection.placement import place
from jarvis_agent.selection.selector import at_revision
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.selection.sources.base import RemoteSource, ask_source, list_candidates

logger = logging.getLogger(__name__)

_MODEL = re.compile(r"(?!.*\.\.)([^@]+)(?:@(\w[\w./-]*))?", re.ASCII)
"""An id and a revision. The Hub's cache takes other revisions for folders elsewhere on this machine."""


@contextmanager
def call_folder() -> Iterator[Path]:
    """A folder for the files of a call, within the block. A thread that outlives it makes no further file."""
    with TemporaryDirectory(prefix="jarvis-", ignore_cleanup_errors=True) as parent:
        (folder := Path(parent, "call")).mkdir()
        try:
            yield folder
        finally:
            with suppress(OSError):
                folder.rename(Path(parent, "ended"))


class ExpertRunner:
    """The local backends, the sources that tell their models, and the pool of this process."""

    def __init__(self, settings: Settings, backends: Iterable[Backend | Factory] | None = None) -> None:
        """`settings` limit every call; `backends` as for an agent."""
        self.settings = settings.model_copy(update={"experts": None, "policy": "local-only"})
        self._pool = ModelPool(settings.memory_limit)
        instances = make_backends(self.settings, self._pool, backends)
        self._backends = {backend.name: backend for backend in instances if isinstance(backend, LocalBackend)}
        self._sources = default_sources(self.settings)
        self._rows: dict[Key, dict[str, Any]] = {}
        self._seeds = count(self.settings.seed)

    def models(self) -> dict[str, Any]:
        """What is "loaded", each model with its bytes and calls, and the bytes by device; plain JSON."""
        sizes = self._pool.loaded
        loaded = [{**row, "bytes": sizes[key]} for key, row in self._rows.items() if key in sizes]
        return {"loaded": loaded, "memory": self._pool.used, "memory_limit": self.settings.memory_limit}

    async def close(self) -> None:
        """Free the models."""
        await self._pool.close()

    async def answer(self, request: InferenceRequest) -> Response:
        """The response to a request; an error is {"error": "…"}. Cancelling it cancels the call."""
        seconds = self.settings.task_timeout
        with call_folder() as folder:
            try:
                async with asyncio.timeout(seconds):
                    return await self._run(request, folder)
            except TimeoutError:
                return self._refusal(errors.AttemptTimeoutError(f"no answer within {seconds:g} s"))
            except Exception as error:
                return self._refusal(error)

    def _refusal(self, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return JSONResponse({"error": error.detail}, error.status_code)
        errors.log_error(logger, "a call failed", error)  # its caller gets the message alone
        status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
        return JSONResponse({"error": errors.public_message(error)}, status)

    async def _run(self, request: InferenceRequest, folder: Path) -> Response:
        fields = await asyncio.to_thread(hub_api.read_fields, request)
        model, named, options = await self._find(request, fields)
        spec = TASKS[model.task]
        placed = place(model, spec, [*self._backends.values()], self.settings)
        if isinstance(placed, str):
            raise errors.UnsupportedError(
                "the expert server cannot run {model}: {reason}", model=model.id, reason=placed
            )
        model = placed.primary
        backend = self._backends[model.backend or ""]
        returns_files = options.pop("return_files", False)
        top_k = options.pop("top_k", None) if "data" in spec.outputs else None
        seed = options.pop("seed") if "seed" in options else next(self._seeds)
        settings = self.settings.model_copy(update={"seed": seed})
        numbers = {name: fields.get(name, 0) for name in ("top_k", "seed")}
        if wrong := [name for name, n in numbers.items() if type(n) is not int or abs(n) >= 2**63]:
            raise errors.BadInputError(f"{wrong[0]} must be a whole number of 64 bits")
        metadata = {**model.metadata, "options": {**(model.metadata.get("options") or {}), **options}}
        store = ResourceStore(settings, directory=folder)
        store.directory.prepare()  # else a thread that outlives the call would make the folder again
        inputs = {
            name: await hub_api.bind(arg, named[name], store) for name in named if (arg := spec.arg(name))
        }
        model = model.model_copy(update={"metadata": metadata})
        call = Call(spec, model, inputs, store.directory.new_path, settings)
        raw = await backend.run(call)
        # The calls of the models that are loaded are counted.
        key, loaded = backend.pool_key(spec, model, self.settings), self._pool.loaded
        row = self._rows.setdefault(key, {"model": model.id, "backend": backend.name, "calls": 0})
        row["calls"] += 1
        self._rows = {key: row for key, row in self._rows.items() if key in loaded}
        return await asyncio.to_thread(_respond, raw, call, folder if returns_files else None, top_k)

    async def _find(self, request: InferenceRequest, fields: Fields) -> tuple[Candidate, Fields, Fields]:
        """The model for the task that fits the fields best; its arguments and options."""
        named, task = _MODEL.fullmatch(request.model), find_task(request.task)
        specs = [task] if task else [] if request.task else [*TASKS.values()]
        models = await self._known(named[1], named[2], specs) if named else []
        if not models:
            what = f" for {request.task[:80]}" if request.task else ""
            raise HTTPException(404, f"this server has no model {request.model[:200]}{what}")
        fits = [(m, *hub_api.split_fields(TASKS[m.task], fields)) for m in models]
        model, missing, arguments, options = min(fits, key=lambda fit: (bool(fit[1]), len(fit[3])))
        if missing:
            raise errors.BadInputError(f"{model.task} by {model.id} needs {', '.join(missing)}")
        return model, arguments, options

    async def _known(self, name: str, revision: str | None, specs: Sequence[TaskSpec]) -> list[Candidate]:
        """The models of an id on this machine; for a single task, otherwise the one of the Hub."""
        here = [source for source in self._sources if not isinstance(source, RemoteSource)]
        asking = (list_candidates(source, spec, 1_000, self.settings) for spec in specs for source in here)
        lists = [await answer for answer in asking]
        models = [model for listed in lists for model in listed if model.id.lower() == name.lower()]
        for source in self._sources:
            if isinstance(source, RemoteSource) and not models and len(specs) == 1:
                look = source.find(specs[0], name, revision)
                models += filter(None, [await ask_source(source, look, self.settings)])
        return [at_revision(model, revision) for model in models]


def _respond(raw: Any, call: Call, folder: Path | None, top_k: int | None) -> Response:
    """The adapted output; with the folder of the call, the whole result. Blocks."""
    try:
        result = adapt(call.spec, raw, call)
    except errors.InputError as error:  # no file of the request is at fault: none can be written
        raise errors.ExpertError(error.note) from error
    if folder:
        return hub_api.write_result(result, call, folder)
    return hub_api.write_response(call.spec, result, top_k)


def make_app(runner: ExpertRunner, server: ServerSettings) -> FastAPI:
    """The application that passes calls to `runner`, and closes it at shutdown."""
    # The runs of a client may have all of their tasks here.
    at_once = server.max_concurrent_runs * MAX_PARALLEL
    enough = {"max_concurrent_runs": at_once, "runs_per_minute": 60 * at_once}
    calls = RunLimits(server.model_copy(update=enough))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await runner.close()

    app = FastAPI(title="jarvis experts", version=__version__, lifespan=lifespan)
    limit = runner.settings.max_file_bytes * 4 // 3 + MAX_JSON_BYTES  # files in JSON are base64
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limit)
    add_middleware(app, server, open_paths=("/healthz",))
    app.add_middleware(metrics.RequestMetrics)
    app.state.loaded_models = lambda: runner.models()["loaded"]
    app.include_router(metrics.router)

    @app.post("/models/{model:path}")
    async def infer(request: Request) -> Response:
        """Run a model, within the limits of the client. If it goes, the call ends."""
        model, _, task = request.path_params["model"].partition("/pipeline/")
        try:
            with calls.hold(request.state.owner):
                mime = request.headers.get("content-type", "").partition(";")[0]
                parameters = request.query_params.get("parameters", "{}")
                inference = InferenceRequest(model, task, await request.body(), mime, parameters)
                return await unless_disconnected(request, runner.answer(inference))
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.get("/models")
    async def models() -> dict[str, Any]:
        """Tell what is loaded."""
        return {"version": __version__, **runner.models()}

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that the server is up."""
        return {"status": "ok"}

    return app
