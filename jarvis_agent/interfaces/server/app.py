"""The web application of `interfaces.server.create_app`. It needs the extra "serve" to be imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, File, HTTPException, Request, UploadFile
from fastapi.responses import FileResponse, RedirectResponse
from langserve import add_routes

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.server.errors import TOLD, ErrorReportingRoute, answer_fault
from jarvis_agent.interfaces.server.files import Upload, Uploads, find_output
from jarvis_agent.interfaces.server.origin import TrustedHosts
from jarvis_agent.interfaces.server.retention import sweep
from jarvis_agent.interfaces.server.serializer import WholeSerializer

THREAD_HEADER = "X-Thread-Id"
"""A request header: the chat that a request belongs to."""

_FORM = 64 * 1024
_LONGEST_PAUSE = 60.0


def make_app(agent: JarvisAgent, path: str, allowed_hosts: Sequence[str]) -> FastAPI:
    """As `create_app`."""
    settings = agent.settings
    runs = settings.output_dir / "served"
    uploads = Uploads(
        settings.output_dir / "uploads",
        settings.max_file_bytes,
        seconds=settings.retention,
    )

    def sweep_all() -> None:
        uploads.sweep()
        sweep(runs, seconds=settings.retention, busy=settings.run_timeout)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(
            _sweep(sweep_all, every=min(max(settings.retention / 2, 1.0), _LONGEST_PAUSE))
        )
        try:
            yield
        finally:
            sweeping.cancel()
            await agent.aclose()

    app = FastAPI(
        title="jarvis-agent",
        version=__version__,
        lifespan=lifespan,
        # A file within a message is base64, which is longer by a third.
        max_body_size=settings.max_file_bytes * 4 // 3 + _FORM,
    )
    app.add_middleware(TrustedHosts, allowed=allowed_hosts)
    for fault in TOLD:
        app.add_exception_handler(fault, answer_fault)
    app.include_router(_agent_routes(agent.confined(uploads.directory, output_dir=runs), path))
    app.include_router(_file_routes(uploads, runs))

    @app.get("/", include_in_schema=False)
    async def start() -> RedirectResponse:
        # Without a slash before it the address holds behind a proxy too, which may serve this below a path.
        return RedirectResponse(f"{path}/playground/".lstrip("/"))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Say that the server is up."""
        return {"status": "ok", "version": __version__}

    return app


async def _sweep(sweep: Callable[[], None], every: float) -> None:
    """Delete what is old also while nobody sends anything new."""
    while True:
        await asyncio.to_thread(sweep)
        await asyncio.sleep(every)


def _agent_routes(agent: JarvisAgent, path: str) -> APIRouter:
    router = APIRouter(route_class=ErrorReportingRoute)
    add_routes(
        router,
        agent.with_types(input_type=str | AgentRequest, output_type=Run),  # type: ignore[arg-type]
        path=path,
        per_req_config_modifier=_with_thread,
        disabled_endpoints=["config_hashes"],
        serializer=WholeSerializer(),
    )
    return router


def _with_thread(config: dict[str, Any], request: Request) -> dict[str, Any]:
    """The config of a run with its chat's id, which comes in a header."""
    thread = request.headers.get(THREAD_HEADER)
    if not thread:
        return config
    return {**config, "configurable": {**config.get("configurable", {}), "thread_id": thread}}


def _file_routes(uploads: Uploads, runs: Path) -> APIRouter:
    router = APIRouter(tags=["files"])

    @router.post("/files", status_code=201)
    async def upload(file: Annotated[UploadFile, File()]) -> Upload:
        """Store a file. A request names it in `files` by the name that comes back."""
        try:
            return await asyncio.to_thread(uploads.save, file.filename or "", file.file, file.size or 0)
        except OSError as error:
            raise HTTPException(507, f"the file could not be stored: {error.strerror}") from error

    @router.get("/outputs/{run}/{name}")
    async def output(run: str, name: str) -> FileResponse:
        """Give a file that a run made: the last two parts of its path in the Run."""
        found = await asyncio.to_thread(find_output, runs, run, name)
        if found is None:
            raise HTTPException(404, "there is no such file")
        return FileResponse(
            found.path,
            media_type=found.mime,
            filename=found.path.name,
            content_disposition_type="inline" if found.shown else "attachment",
            headers={"X-Content-Type-Options": "nosniff"},
        )

    return router
