"""The web application of `jarvis_agent.interfaces.server.create_app`; it needs the extra "serve"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, File, HTTPException, Request, UploadFile
from fastapi.responses import FileResponse, RedirectResponse
from langserve import add_routes
from starlette.middleware.trustedhost import TrustedHostMiddleware

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.settings import Settings
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.server.errors import (
    STATUSES,
    ErrorReportingRoute,
    RunSerializer,
    error_response,
)
from jarvis_agent.interfaces.server.files import Upload, delete_expired, find_output, save_upload
from jarvis_agent.interfaces.server.openai_api import openai_routes
from jarvis_agent.interfaces.server.origin import OriginCheck
from jarvis_agent.interfaces.server.path_filter import PathFilter, private_directories

THREAD_HEADER = "X-Thread-Id"
"""The request header with the id of the chat."""

_FORM_BYTES = 64 * 1024
_MAX_SWEEP_INTERVAL_S = 60.0


def make_app(agent: JarvisAgent, path: str, allowed_hosts: Sequence[str]) -> FastAPI:
    """As `create_app`."""
    settings = agent.settings
    uploads, runs = settings.output_dir.absolute() / "uploads", settings.output_dir / "served"

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(uploads, runs, settings))
        try:
            yield
        finally:
            sweeping.cancel()
            await agent.aclose()

    app = FastAPI(
        title="jarvis",
        version=__version__,
        lifespan=lifespan,
        # A file inside a message is base64, which is a third larger.
        max_body_size=settings.max_file_bytes * 4 // 3 + _FORM_BYTES,
    )
    app.add_middleware(OriginCheck, allowed_hosts=allowed_hosts)
    hosts = [f"[{host}]" if ":" in host else host for host in allowed_hosts]  # IPv6, as `Host` has it
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(PathFilter, runs=runs, uploads=uploads, private=private_directories(agent))
    for kind in STATUSES:
        app.add_exception_handler(kind, error_response)
    app.include_router(_agent_routes(agent.restricted(uploads, output_dir=runs), path))
    app.include_router(_file_routes(uploads, runs, settings.max_file_bytes))
    if not agent.approve:  # A plan cannot be approved there.
        stateless = agent.restricted(uploads, runs, output_dir=runs).with_checkpointer(None)
        app.include_router(openai_routes(stateless, runs))

    @app.get("/", include_in_schema=False)
    async def start() -> RedirectResponse:
        # A relative address also works behind a proxy that serves this application below a path.
        return RedirectResponse(f"{path}/playground/".lstrip("/"))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Report that the server is up."""
        return {"status": "ok", "version": __version__}

    return app


async def _sweep(uploads: Path, runs: Path, settings: Settings) -> None:
    """Delete expired files regularly. Files of a run are kept at least as long as a run may take."""
    while True:
        await asyncio.to_thread(delete_expired, uploads, settings.retention)
        await asyncio.to_thread(delete_expired, runs, max(settings.retention, settings.run_timeout))
        await asyncio.sleep(min(max(settings.retention / 2, 1.0), _MAX_SWEEP_INTERVAL_S))


def _agent_routes(agent: JarvisAgent, path: str) -> APIRouter:
    router = APIRouter(route_class=ErrorReportingRoute)
    add_routes(
        router,
        agent.with_types(input_type=str | AgentRequest, output_type=Run),  # type: ignore[arg-type]
        path=path,
        per_req_config_modifier=_with_thread,
        disabled_endpoints=["config_hashes"],
        serializer=RunSerializer(),
    )
    return router


def _with_thread(config: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the config of a run with the thread id of its header."""
    thread = request.headers.get(THREAD_HEADER)
    if not thread:
        return config
    return {**config, "configurable": {**config.get("configurable", {}), "thread_id": thread}}


def _file_routes(uploads: Path, runs: Path, max_bytes: int) -> APIRouter:
    router = APIRouter(tags=["files"])

    @router.post("/files", status_code=201)
    async def upload(file: Annotated[UploadFile, File()]) -> Upload:
        """Store a file. A request refers to it in `files` by the name that is returned."""
        name, size = file.filename or "", file.size or 0
        try:
            return await asyncio.to_thread(save_upload, uploads, name, file.file, size, max_bytes)
        except OSError as error:
            raise HTTPException(507, f"the file could not be stored: {error.strerror}") from error

    @router.get("/outputs/{run}/{name}")
    async def output(run: str, name: str) -> FileResponse:
        """Return a file of a run, named by the last two parts of its path in the Run."""
        found = await asyncio.to_thread(find_output, runs, run, name)
        if found is None:
            raise HTTPException(404, "no such file")
        return FileResponse(
            found.path,
            media_type=found.mime,
            filename=found.path.name,
            content_disposition_type="inline" if found.inline else "attachment",
            headers={"X-Content-Type-Options": "nosniff"},
        )

    return router
