"""The web application of `jarvis_agent.interfaces.server.create_app`; it needs the extra "serve"."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, File, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.security import HTTPBearer
from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator, RunnableLambda
from langserve import add_routes

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating
from jarvis_agent.core.errors import InputError, public_message
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common.access import add_middleware, owners_of
from jarvis_agent.interfaces.common.limits import BodyLimit, RunLimits
from jarvis_agent.interfaces.common.metrics import RequestMetrics, metrics_routes, observe_run
from jarvis_agent.interfaces.common.uploads_and_outputs import (
    SWEEP_S,
    Upload,
    delete_expired,
    output_response,
    receive_upload,
)
from jarvis_agent.interfaces.server.database import open_database
from jarvis_agent.interfaces.server.errors import EXCEPTION_HANDLERS, ErrorReportingRoute, RunSerializer
from jarvis_agent.interfaces.server.openai_api import openai_routes
from jarvis_agent.interfaces.server.openai_tasks import openai_task_routes
from jarvis_agent.interfaces.server.runs import StartedRuns
from jarvis_agent.interfaces.server.runs_api import claim_thread
from jarvis_agent.interfaces.server.runs_api import router as runs_router
from jarvis_agent.interfaces.server.tool_routes import tool_routes
from jarvis_agent.interfaces.server.workspaces import (
    Workspace,
    directories_of,
    for_owner,
    make_workspaces,
    public_names,
)
from jarvis_agent.planning.plan import Plan
from jarvis_agent.selection.model_registry import loaded_models

_OPEN_PATHS = ("/", "/docs", "/healthz", "/openapi.json")
"""What needs no key."""

_logger = logging.getLogger(__name__)

HealthCheck = Callable[[], Awaitable[object]]
"""Raises an error if a part of the server does not work."""

_CHECK_S = 4.0
"""Longest wait for a part. A container gives both 10 s."""


def create_app(agent: JarvisAgent, settings: ServerSettings | None = None, *, prefix: str = "") -> FastAPI:
    """Return a web application that serves `agent` and closes it at shutdown.

    Routes: LangServe's below `/agent`; OpenAI's below `/v1`, unless the agent asks for approval; `/runs` for
    runs that outlive their request; `POST /files` stores an upload; `GET /outputs/{run}/{name}` returns a
    file of a run; `GET /healthz`; `GET /` redirects to the playground.

    Args:
        agent: requests may read uploads, and no other file, whatever its `Settings.allowed_dirs` are. Threads
            are kept in the database of the server, not in the agent's checkpointer.
        settings: keys and limits of clients; None: from the environment.
        prefix: a path, such as "/jarvis", below which all routes are, beside those of another application: as
            `http.app` of langgraph.json, whose server has a `/runs` of its own.

    Raises:
        ConfigError: a variable has an invalid value.
    """
    server = settings or ServerSettings()
    keys = [key.get_secret_value() for key in server.api_keys]
    workspaces = make_workspaces(agent.copy(observer=observe_run), owners_of(keys))
    limits, outputs, kept = RunLimits(server), agent.settings.output_dir, server.run_retention(agent.settings)
    delete = partial(asyncio.to_thread, _delete_expired, agent, kept, server.retention)
    parts: dict[str, HealthCheck] = {"files": partial(asyncio.to_thread, check_writable, outputs)}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with (
            agent,
            open_database(server.checkpoints, outputs, kept) as database,
            StartedRuns(database, workspaces, limits.hold) as runs,
            repeating(delete, SWEEP_S, "the deletion of files"),
        ):
            app.state.runs, parts["database"] = runs, database.check
            yield

    app = FastAPI(
        title="jarvis",
        version=__version__,
        lifespan=lifespan,
        exception_handlers=EXCEPTION_HANDLERS,
        # The page with the documentation then has a button to enter the key.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if keys else [],
    )
    app.add_middleware(BodyLimit, max_file_bytes=agent.settings.max_file_bytes)
    add_middleware(app, server, open_paths=_OPEN_PATHS)
    app.add_middleware(RequestMetrics)
    app.include_router(_agent_routes(workspaces, limits))
    app.include_router(runs_router)
    app.include_router(_file_routes(workspaces, agent.settings.max_file_bytes, server.max_upload_bytes))
    stateless = [tool_routes(workspaces), openai_task_routes(workspaces, server.max_upload_bytes)]
    if not agent.approve:  # A plan cannot be approved there.
        stateless.append(openai_routes(workspaces))
    for router in stateless:
        app.include_router(router, dependencies=[Depends(limits.check)])
    app.include_router(health_routes(parts))
    app.include_router(metrics_routes(loaded_models))

    @app.get("/", include_in_schema=False)
    async def start() -> RedirectResponse:
        # A relative address also works behind a proxy that serves this application below a path. Browsers
        # cannot send a key to the playground.
        return RedirectResponse("docs" if keys else "agent/playground/")

    if not prefix:
        return app
    around = FastAPI(openapi_url=None, lifespan=lifespan)  # that of a mounted application is not run
    around.mount(prefix, app)
    return around


def _delete_expired(agent: JarvisAgent, *seconds: float) -> None:
    """Delete runs and uploads older than these seconds, also those of revoked keys."""
    for directory, seconds_kept in zip(directories_of(agent), seconds, strict=True):
        for folder in directory.glob("*/"):
            delete_expired(folder, seconds_kept)


def _ending_whole(agent: JarvisAgent) -> Runnable[Any, Run]:
    """The agent with a stream that ends with the whole Run.

    A client's chain takes the last chunk as the result, since it cannot add plain JSON up. The sum of Runs
    stays right: the whole replaces its parts.
    """

    async def stream(requests: AsyncIterator[Any], config: RunnableConfig) -> AsyncIterator[Run]:
        async for request in requests:
            whole, before = Run(), list[Run]()
            async with aclosing(agent.astream(request, config)) as chunks:
                async for chunk in chunks:
                    if before:
                        yield before[0]
                    whole, before = whole + chunk, [chunk]
            yield whole

    return RunnableGenerator(stream, name="stream")  # type: ignore[arg-type]


class _Batched(RunnableLambda[Any, Run]):
    """Answers a bad request of a batch with a Run that says why, unless all are bad."""

    async def abatch(
        self, inputs: list[Any], config: Any = None, *, return_exceptions: bool = False, **kwargs: Any
    ) -> list[Run]:
        outputs: list[Any] = await super().abatch(inputs, config, return_exceptions=True, **kwargs)
        errors = [output for output in outputs if isinstance(output, Exception)]
        unexpected = [error for error in errors if not isinstance(error, InputError)]
        if unexpected or len(errors) == len(outputs) > 0:
            raise (unexpected or errors)[0]
        return [_refused(output) if isinstance(output, InputError) else output for output in outputs]


def _refused(error: InputError) -> Run:
    why = public_message(error)
    return Run(answer=why, plan=Plan(notes=[why], removed=[why]))


def _agent_routes(workspaces: Mapping[str, Workspace], limits: RunLimits) -> APIRouter:
    def of_owner(_: Any, config: RunnableConfig) -> Any:
        """The agent of a request's thread, which stores it, or that of its owner."""
        configurable = config["configurable"]
        return _ending_whole(configurable["agent"] or workspaces[configurable["owner"]].agent)

    router = APIRouter(
        route_class=ErrorReportingRoute, dependencies=[Depends(limits.check), Depends(claim_thread)]
    )
    add_routes(
        router,
        _Batched(of_owner, name="jarvis").with_types(
            input_type=str | list[AnyMessage] | AgentRequest,  # type: ignore[arg-type]
            output_type=Run,
        ),
        path="/agent",
        per_req_config_modifier=for_owner,
        disabled_endpoints=["config_hashes", "token_feedback"],
        serializer=RunSerializer(public_names(workspaces)),
    )
    return router


def _file_routes(workspaces: Mapping[str, Workspace], max_bytes: int, max_stored: int) -> APIRouter:
    router = APIRouter(tags=["files"])

    @router.post("/files", status_code=201)
    async def upload(request: Request, file: Annotated[UploadFile, File()]) -> Upload:
        """Store a file. A request refers to it in `files` by the name that is returned."""
        return await receive_upload(workspaces[request.state.owner].uploads, file, max_bytes, max_stored)

    @router.get("/outputs/{run}/{name}")
    async def output(request: Request, run: str, name: str) -> FileResponse:
        """Return a file of a run, named by the last two parts of its path in the Run."""
        return await output_response(workspaces[request.state.owner].runs, run, name)

    return router


def health_routes(parts: Mapping[str, HealthCheck]) -> APIRouter:
    """Return the route `/healthz`, for load balancers and containers; `parts` may change later.

    {"status": "ok", "parts": {"files": "ok"}}            # 200
    {"status": "failing", "parts": {"files": "failing"}}  # 503; why is in the log, not in the response
    """
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> JSONResponse:
        """Tell whether the server is up, and which of its parts are."""
        states = {}
        for name, check in parts.items():
            try:
                async with asyncio.timeout(_CHECK_S):
                    await check()
                states[name] = "ok"
            except Exception as error:
                _logger.error("%s: %s", name, str(error) or "no answer")
                states[name] = "failing"
        status = "failing" if "failing" in states.values() else "ok"
        return JSONResponse({"status": status, "parts": states}, 200 if status == "ok" else 503)

    return router


def check_writable(directory: Path) -> None:
    """Write a temporary file there.

    Raises:
        OSError: the directory cannot be written, or its disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(b"x")
