"""Gradio Spaces as experts, where the user names them.

    RegisteredSource({"id": "org/space", "task": "text-to-image", "space": "org/space", "api_name": "/infer",
                      "metadata": {"inputs": {"prompt": "text"}, "options": {"steps": 4}}})
    RegisteredSource({"id": "mine", "task": "image-to-text", "space": "http://127.0.0.1:7860"})

gradio_client blocks, so each call is a thread of its own, which ends soon after nobody waits for it any more.
The user's Hugging Face token goes to private Spaces alone: a public one is a stranger's program.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.errors import expert_error, reply_timeout
from jarvis_agent.backends.hosted.space_calls import arguments, choose_endpoint, raw_output
from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.errors import (
    JarvisError,
    MissingExtraError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    redacted_cause,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.threads import in_thread
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from gradio_client import Client

_SILENCE = 60.0
"""Longest silence of a Space in seconds; one that works sends a sign of life every 15."""

_LOOK = 0.1
"""Seconds between two looks whether the call was cancelled."""


class SpacesBackend:
    """Runs candidates that have a `space`."""

    name: ClassVar[str] = "spaces"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if the candidate is a Space that may be asked, else the reason."""
        if "space" not in candidate.metadata:
            return "it is no Space that you named"
        if self._settings.offline and not candidate.local:
            return "offline mode is on"
        if find_spec("gradio_client") is None:
            return str(MissingExtraError(f"the Space {candidate.metadata['space']}", "spaces"))
        return None

    async def run(self, call: Call) -> Any:
        """Ask the Space once.

        Raises:
            TransientError: it can not be reached, is full or starting, or takes too long.
            RateLimitedError: it has had too many requests.
            UnsupportedError: it does not do the task, or fails at it.
        """
        gone = threading.Event()
        limit = reply_timeout(self._settings)
        try:
            async with asyncio.timeout(limit):
                return await in_thread(_use, call, self._settings, gone)
        except TimeoutError as error:
            space = call.candidate.metadata["space"]
            raise TransientError(f"the Space {space} did not answer within {limit:g} s") from error
        finally:
            gone.set()

    async def close(self) -> None:
        """Nothing is held between calls."""


def _use(call: Call, settings: Settings, gone: threading.Event) -> Any:
    """The raw output of a Space for a call."""
    space = str(call.candidate.metadata["space"])
    with TemporaryDirectory(prefix="jarvis-space-", ignore_cleanup_errors=True) as folder:
        try:
            client = _connect(space, settings, folder)
            try:
                return _ask(client, call, gone, Path(folder))
            finally:
                client.close()
        except JarvisError:
            raise
        except Exception as error:
            raise _expert_error(error, space) from redacted_cause(error)
        finally:
            call.sweep()


def _ask(client: Client, call: Call, gone: threading.Event, downloads: Path) -> Any:
    from gradio_client import handle_file

    name, endpoint = choose_endpoint(client.view_api(print_info=False, return_format="dict"), call)
    job = client.submit(api_name=name, **arguments(endpoint, call, handle_file))
    while not wait([job.future], timeout=_LOOK).done:
        if gone.is_set():
            job.cancel()
            raise TransientError("the call was cancelled")
    return raw_output(endpoint, job.future.result(), call, downloads)


def _connect(space: str, settings: Settings, folder: str) -> Client:
    """A client of a Space, which prints nothing and reports to nobody.

    Raises:
        UnsupportedError: the Space does not run, and will not by itself.
        TransientError: it is starting, or what is there is no Space.
    """
    from gradio_client import Client
    from gradio_client.exceptions import AuthenticationError

    class Quiet(Client):  # type: ignore[misc]
        def _telemetry_thread(self) -> None:
            """The client counts its users whatever it is told; this one does not."""

    address, token = _address(space, settings)
    try:
        return Quiet(
            address,
            # Without a token the client takes the one that is stored on this machine.
            token=token or False,
            verbose=False,
            download_files=folder,
            httpx_kwargs={"timeout": min(_SILENCE, settings.attempt_timeout)},
        )
    except AuthenticationError:
        raise
    except ValueError as error:
        # A Space that is woken by the request answers so at first.
        raise TransientError(f"the Space {space} is not ready: {brief_text(str(error))}") from redacted_cause(
            error
        )


def _address(space: str, settings: Settings) -> tuple[str, str | None]:
    """A Space's address, and the token that it is sent."""
    if space.startswith(("http://", "https://")):
        return space, None
    from huggingface_hub import HfApi

    info = HfApi(token=settings.token).space_info(space, timeout=settings.attempt_timeout)
    stage = str(info.runtime.stage) if info.runtime else "RUNNING"
    if stage in ("BUILDING", "APP_STARTING"):
        raise TransientError(f"the Space {space} is starting ({stage})")
    if stage in ("PAUSED", "STOPPED", "NO_APP_FILE") or stage.endswith("_ERROR") or not info.host:
        raise UnsupportedError(f"the Space {space} does not run ({stage}); its owner must restart it")
    return str(info.host), settings.token if info.private else None


def _expert_error(error: Exception, space: str) -> JarvisError:
    """The error for what gradio_client or huggingface_hub raised."""
    from gradio_client.client import httpx
    from gradio_client.exceptions import AppError, AuthenticationError
    from gradio_client.utils import QueueError, TooManyRequestsError

    said = f"the Space {space}: {brief_text(str(error)) or type(error).__name__}"
    if isinstance(error, TooManyRequestsError):
        return RateLimitedError(said)
    if isinstance(error, QueueError | httpx.TransportError):
        return TransientError(said)
    if isinstance(error, AppError | AuthenticationError):
        return UnsupportedError(said)
    return expert_error(error, f"the Space {space}")
