"""What each request to a server passes first: API keys, pages of other sites, host names, private paths.

app = Starlette(...)
add_middleware(app, ServerSettings(), PathRedactor(runs, uploads, private_directories(agent)))
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from jarvis_agent.interfaces.server.access import Authentication
from jarvis_agent.interfaces.server.origin import OriginCheck
from jarvis_agent.interfaces.server.path_filter import PathFilter, PathRedactor
from jarvis_agent.interfaces.server.settings import ServerSettings


def add_middleware(
    app: Starlette,
    settings: ServerSettings,
    redactor: PathRedactor,
    *,
    headers: Collection[str] = (),
    open_paths: Collection[str] = (),
) -> None:
    """Add the middleware to an application; what is added last comes first.

    Args:
        app: the application.
        settings: keys, hosts and origins.
        redactor: replaces private paths in responses.
        headers: request headers, besides `Authorization`, that pages of other sites may send.
        open_paths: paths that need no key.
    """
    hosts, origins = settings.allowed_hosts or ("*",), settings.allowed_origins
    keys = [key.get_secret_value() for key in settings.api_keys]
    logging.getLogger("uvicorn.access").addFilter(_drop_query)
    app.add_middleware(Authentication, keys=keys, open_paths=open_paths)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", *headers],
        expose_headers=["Retry-After", "Mcp-Session-Id"],
    )
    app.add_middleware(OriginCheck, allowed_hosts=hosts, allowed_origins=origins)
    named = [f"[{host}]" if ":" in host else host for host in hosts]  # IPv6, as `Host` has it
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=named, www_redirect=False)
    app.add_middleware(PathFilter, redactor=redactor)


def _drop_query(record: logging.LogRecord) -> bool:
    """Remove the query of a URL from a line of the log: with its signature, a reader could fetch the file."""
    client, method, path, *rest = record.args or ()
    record.args = (client, method, str(path).partition("?")[0], *rest)
    return True
