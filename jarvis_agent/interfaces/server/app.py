"""The web application of `jarvis_agent.interfaces.server.create_app`; it needs the extra "serve"."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, File, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.security import HTTPBearer
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig, RunnableGenerator
from langserve import add_routes
from pydantic import BeforeValidator

from jarvis_agent import __version__
from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.core.errors import InputError, public_message
from jarvis_agent.core.request import Request as AgentRequest
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common import metrics
from jarvis_agent.interfaces.common.access import LOCAL, add_middleware, owners_of
from jarvis_agent.interfaces.common.limits import BodyLimit, RunLimits
from jarvis_agent.interfaces.common.uploads_and_outputs import Upload, deleting_expired, output_response
from jarvis_agent.interfaces.server import openai_api, openai_tasks, runs, tool_routes, workspaces
from jarvis_agent.interfaces.server.database import open_database
from jarvis_agent.interfaces.server.errors import EXCEPTION_HANDLERS, ErrorReportingRoute, RunSerializer
from jarvis_agent.planning.plan import Plan
from jarvis_agent.selection.model_registry import loaded_models

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
    observed = agent.copy(observer=metrics.observe_run)
    owned = workspaces.make_workspaces(observed, owners_of(server), server.max_upload_bytes)
    limits, outputs, kept = RunLimits(server), agent.settings.output_dir, server.run_retention(agent.settings)
    stored = dict(zip(workspaces.directories(agent), (kept, server.retention), strict=True))
    parts: dict[str, HealthCheck] = {"files": partial(asyncio.to_thread, check_writable, outputs)}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with (
            agent,
            open_database(server.checkpoints, outputs, kept) as database,
            runs.StartedRuns(database, owned, limits.hold).watched() as started,
            deleting_expired(stored),
        ):
            app.state.runs, parts["database"] = started, database.check
            yield

    app = FastAPI(
        title="jarvis",
        version=__version__,
        lifespan=lifespan,
        exception_handlers=EXCEPTION_HANDLERS,
        # The page with the documentation then has a button to enter the key.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if server.api_keys else [],
    )
    app.state.workspaces, app.state.chats, app.state.tool_handlers = owned, ChatMemory(), {}
    app.state.serializer, app.state.parts = RunSerializer(workspaces.public_names(owned)), parts
    app.state.loaded_models = loaded_models
    app.add_middleware(BodyLimit, max_file_bytes=agent.settings.max_file_bytes)
    add_middleware(app, server, open_paths=("/", "/docs", "/healthz", "/openapi.json"))
    app.add_middleware(metrics.RequestMetrics)
    for routes in (runs.router, router, metrics.router):
        app.include_router(routes)
    limited = [_agent_routes(app.state.serializer), tool_routes.router, openai_tasks.router]
    limited += [] if agent.approve else [openai_api.router]  # A plan cannot be approved there.
    for routes in limited:
        app.include_router(routes, dependencies=[Depends(limits.check)])
    if not prefix:
        return app
    around = FastAPI(openapi_url=None, lifespan=lifespan)  # that of a mounted application is not run
    around.mount(prefix, app)
    return around


async def _stream(requests: AsyncIterator[Any], config: RunnableConfig) -> AsyncIterator[Run]:
    """The chunks of the agent of a request, and at the end the whole Run.

    A client's chain takes the last chunk as the result, since it cannot add plain JSON up. The sum of Runs
    stays right: the whole replaces its parts.
    """
    agent: JarvisAgent = config["configurable"]["agent"]
    async for request in requests:
        whole = Run()
        async with aclosing(agent.astream(request, config)) as chunks:
            async for chunk in chunks:
                whole += chunk
                yield chunk
        yield whole


class _Agent(RunnableGenerator[Any, Run]):
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


def _checked(value: Any) -> Any:
    """A request that can be read, with messages of LangChain. Raises InputError."""
    request = AgentRequest.of(value)
    return request.messages if isinstance(value, list) else value


def _agent_routes(serializer: RunSerializer) -> APIRouter:
    router = APIRouter(route_class=ErrorReportingRoute, dependencies=[Depends(runs.claim_thread)])
    add_routes(
        router,
        _Agent(_stream, name="jarvis").with_types(  # type: ignore[arg-type]
            input_type=Annotated[str | list[AnyMessage] | AgentRequest, BeforeValidator(_checked)],  # type: ignore[arg-type]
            output_type=Run,
        ),
        path="/agent",
        per_req_config_modifier=workspaces.for_owner,
        disabled_endpoints=["config_hashes", "token_feedback"],
        serializer=serializer,
    )
    return router


router = APIRouter()
"""The routes for files and the health of the server; `app.state.parts` may change."""


@router.post("/files", status_code=201, tags=["files"])
async def upload(workspace: workspaces.Own, file: Annotated[UploadFile, File()]) -> Upload:
    """Store a file. A request refers to it in `files` by the name that is returned."""
    return await workspace.receive(file)


@router.get("/outputs/{run}/{name}", tags=["files"])
async def output(workspace: workspaces.Own, run: str, name: str) -> FileResponse:
    """Return a file of a run, named by the last two parts of its path in the Run."""
    return await output_response(workspace.runs, run, name)


@router.get("/healthz", tags=["health"])
async def healthz(request: Request) -> JSONResponse:
    """Tell whether the server is up, and which of its parts are."""
    parts: dict[str, HealthCheck] = request.app.state.parts
    states = {}
    for name, check in parts.items():
        try:
            async with asyncio.timeout(_CHECK_S):
                await check()
            states[name] = "ok"
        except Exception as error:  # why is in the log, not in the response
            _logger.error("%s: %s", name, str(error) or "no answer")
            states[name] = "failing"
    status = "failing" if "failing" in states.values() else "ok"
    return JSONResponse({"status": status, "parts": states}, 200 if status == "ok" else 503)


@router.get("/", include_in_schema=False)
async def start(request: Request) -> RedirectResponse:
    """Show the playground. Browsers cannot send a key to it."""
    # A relative address also works behind a proxy that serves this application below a path.
    return RedirectResponse("agent/playground/" if LOCAL in request.app.state.workspaces else "docs")


def check_writable(directory: Path) -> None:
    """Write a temporary file there, or raise OSError: it cannot be written, or its disk is full."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(b"x")
