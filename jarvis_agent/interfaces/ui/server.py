"""The server of `jarvis ui`: the page behind the checks of `jarvis serve`, and a login with API keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import gradio as gr
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.common.access import ApiKey, add_host_checks
from jarvis_agent.interfaces.ui.page import Page, page_options

_HEADERS = {
    # An answer is written by models: a picture in it must not tell another server what was asked.
    "Content-Security-Policy": "default-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(agents: Sequence[JarvisAgent], server: ServerSettings) -> FastAPI:
    """A web application with the page at its root. It closes the agents at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for agent in agents:
            await agent.aclose()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    app.add_middleware(_PageHeaders)
    add_host_checks(app, server)
    known = [ApiKey(key.get_secret_value()) for key in server.api_keys]

    def login(name: str, key: str) -> bool:
        return any(api_key.matches(key.encode()) for api_key in known)

    message = "Any name, and an API key as the password."
    page = Page(agents, server).blocks
    gr.mount_gradio_app(
        app, page, path="/", auth=login if known else None, auth_message=message, **page_options(agents)
    )
    return app


class _PageHeaders:
    """ASGI middleware that adds headers to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)
