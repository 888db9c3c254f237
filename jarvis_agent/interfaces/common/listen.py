"""Where a server listens: `listen` serves an application with uvicorn on an address that may be reached."""

from __future__ import annotations

import ipaddress
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.environment import LOOPBACK
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def check_extra(what: str, extra: str, *packages: str) -> None:
    """Raise MissingExtraError unless the packages that an extra installs for `what` are there."""
    if not all(map(find_spec, packages)):
        raise MissingExtraError(what, extra)


def check_address(host: str, settings: ServerSettings, *, insecure: bool) -> str | None:
    """Why any client may use a server at this address, or None. ConfigError: any may, and not `insecure`."""
    if _is_loopback(host) or settings.api_keys:
        return None
    why = f"{host} can be reached from other machines, and there is no API key"
    if not insecure:
        raise ConfigError(f"{why}: set JARVIS_API_KEYS, or let any client use this server with --insecure")
    return why


def listen(
    make_app: Callable[[ServerSettings], ASGIApp],
    host: str,
    port: int,
    settings: ServerSettings | None = None,
    *,
    insecure: bool = False,
    shutdown_s: int | None = None,
    workers: int = 1,
    **options: Any,
) -> None:
    """Serve an application, made for the settings and the host names of this address, until interrupted.

    Open connections have `shutdown_s` to end; None: any time. Each of several workers, which are processes,
    makes the application for itself. `options` are those of `uvicorn.Config`.
    """
    settings = settings or ServerSettings()
    warning = check_address(host, settings, insecure=insecure)
    hosts = accepted_hosts(host, settings.allowed_hosts)
    make = partial(make_app, settings.model_copy(update={"allowed_hosts": hosts}))
    # httptools would keep a header without end in memory, before any key is checked.
    options |= {"host": host, "port": port, "timeout_graceful_shutdown": shutdown_s, "http": "h11"}
    app: Any = partial(_make_in_worker, make) if workers > 1 else make()
    # Starting, or loading a model, may take a while, in which a worker gives no sign of life.
    options |= {"workers": workers, "factory": workers > 1, "timeout_worker_healthcheck": 60}
    import uvicorn.supervisors

    class Workers(uvicorn.supervisors.Multiprocess):
        """Notices at once that a worker dies while it is asked for a sign of life: its pipe then ends."""

        def keep_subprocess_alive(self) -> None:
            for worker in self.processes:
                worker.child_conn.close()  # The worker has its own.
            super().keep_subprocess_alive()

    config = uvicorn.Config(app, **options)
    if warning:
        logging.getLogger("uvicorn.error").warning("%s: any client may use this server", warning)
    # SIGTERM, which uvicorn raises again at its end, is to leave blocks that remove files and keys.
    with handling(signal.SIGTERM, lambda *_: sys.exit()):
        if workers > 1:
            Workers(config, sockets=[config.bind_socket()]).run()
        else:
            uvicorn.Server(config).run()


def _make_in_worker(make_app: Callable[[], ASGIApp]) -> ASGIApp:
    """Make the application of a worker, which ends after its parent, however that ended."""

    def end_with(parent: Any) -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with, args=[multiprocessing.parent_process()], daemon=True).start()
    return make_app()


@contextmanager
def handling(number: signal.Signals, handler: Callable[..., Any]) -> Iterator[None]:
    """Handle a signal within the block. Nothing changes outside of the main thread, which alone can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


def accepted_hosts(host: str, named: Iterable[str] = ()) -> tuple[str, ...]:
    """The host names that a server on this address accepts in `Host` and `Origin`; "*": any.

    Where only the names of the settings, `named`, are accepted, those of this machine are too.
    """
    return (*named, *LOOPBACK, host) if named or _is_loopback(host) else ("*",)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
