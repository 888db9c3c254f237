"""Gradio Spaces that the user registers, with the endpoint and its parameters.

    RegisteredSource({"id": "org/space", "task": "text-to-image", "space": "org/space", "api_name": "/infer",
                      "metadata": {"inputs": {"prompt": "text"}, "options": {"steps": 4}}})

`api_name` names the endpoint; it may be omitted if the Space has only one. `inputs` maps parameters of the
endpoint to arguments of the task (default: parameters and arguments of the same name), `options` are fixed
values. The result is the endpoint's first return value. gradio_client blocks, so each call has its own
thread.
A Space is untrusted: only private ones get the Hugging Face token, and only files that it sent are read.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.errors import expert_error, reply_timeout
from jarvis_agent.backends.hosted.openai_compatible import answer_output
from jarvis_agent.backends.outputs.validators import existing_file
from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.core.errors import (
    BadInputError,
    InputError,
    JarvisError,
    MissingExtraError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    redacted_cause,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.audio import decode_audio
from jarvis_agent.media.limits import check_pixels

if TYPE_CHECKING:
    from gradio_client import Client

_SILENCE_S = 60.0
"""Timeout between two messages of a Space; a working one sends a heartbeat every 15 s."""

_POLL_S = 0.1
"""Seconds between two checks whether the call was cancelled."""

Endpoint = Mapping[str, Any]
"""An endpoint as the Space describes it: `parameters` and `returns`."""


class SpacesBackend:
    """Runs candidates that have a `space`."""

    name: ClassVar[str] = "spaces"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is a Space that may be called, else the reason."""
        if "space" not in candidate.metadata:
            return "it is not a registered Space"
        if self._settings.offline and not candidate.local:
            return "offline mode is on"
        if find_spec("gradio_client") is None:
            return str(MissingExtraError(f"the Space {candidate.metadata['space']}", "spaces"))
        return None

    async def run(self, call: Call) -> Any:
        """Call the Space once.

        Raises:
            TransientError: it cannot be reached, is full or starting, or takes too long.
            RateLimitedError: it got too many requests.
            UnsupportedError: it has no such endpoint, or fails.
        """
        cancelled = threading.Event()
        limit = reply_timeout(self._settings)
        try:
            async with asyncio.timeout(limit):
                return await run_in_daemon_thread(_run_space, call, self._settings, cancelled)
        except TimeoutError as error:
            space = call.candidate.metadata["space"]
            raise TransientError(f"the Space {space} did not answer within {limit:g} s") from error
        finally:
            cancelled.set()

    async def close(self) -> None:
        """Do nothing: no connection is kept between calls."""


def _run_space(call: Call, settings: Settings, cancelled: threading.Event) -> Any:
    """The raw output of a Space for a call."""
    space = str(call.candidate.metadata["space"])
    with TemporaryDirectory(prefix="jarvis-space-", ignore_cleanup_errors=True) as folder:
        try:
            client = _connect(space, settings, folder)
            try:
                return _predict(client, call, cancelled, Path(folder))
            finally:
                client.close()
        except JarvisError:
            raise
        except Exception as error:
            raise _expert_error(error, space) from redacted_cause(error)
        finally:
            call.sweep()


def _predict(client: Client, call: Call, cancelled: threading.Event, downloads: Path) -> Any:
    from gradio_client import handle_file

    name, endpoint = _endpoint(client.view_api(print_info=False, return_format="dict"), call)
    job = client.submit(api_name=name, **_arguments(endpoint, call, handle_file))
    while not wait([job.future], timeout=_POLL_S).done:
        if cancelled.is_set():
            job.cancel()
            raise TransientError("the call was cancelled")
    return read_output(endpoint, job.future.result(), call, downloads)


def _connect(space: str, settings: Settings, folder: str) -> Client:
    """A client of a Space without output and telemetry.

    Raises:
        UnsupportedError: the Space is paused or broken.
        TransientError: it is starting, or the address is not a Space.
    """
    from gradio_client import Client
    from gradio_client.exceptions import AuthenticationError

    class Quiet(Client):  # type: ignore[misc]
        def _telemetry_thread(self) -> None:
            """Send nothing; the client has no option for this."""

    address, token = _address(space, settings)
    try:
        return Quiet(
            address,
            token=token or False,  # None would mean the token stored on this machine
            verbose=False,
            download_files=folder,
            httpx_kwargs={"timeout": min(_SILENCE_S, settings.attempt_timeout)},
        )
    except AuthenticationError:
        raise
    except ValueError as error:  # also the first answer of a Space that was sleeping
        reason = brief_text(str(error))
        raise TransientError(f"the Space {space} is not ready: {reason}") from redacted_cause(error)


def _address(space: str, settings: Settings) -> tuple[str, str | None]:
    """A Space's address, and the token that it gets."""
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
    """The error for an exception of gradio_client or huggingface_hub."""
    from gradio_client.client import httpx
    from gradio_client.exceptions import AppError, AuthenticationError
    from gradio_client.utils import QueueError, TooManyRequestsError

    message = f"the Space {space}: {brief_text(str(error)) or type(error).__name__}"
    if isinstance(error, TooManyRequestsError):
        return RateLimitedError(message)
    if isinstance(error, QueueError | httpx.TransportError):
        return TransientError(message)
    if isinstance(error, AppError | AuthenticationError):
        return UnsupportedError(message)
    return expert_error(error, f"the Space {space}")


def _endpoint(api: Mapping[str, Any], call: Call) -> tuple[str, Endpoint]:
    """The endpoint in `api_name`, or the only one."""
    endpoints: Mapping[str, Endpoint] = api["named_endpoints"]
    wanted = call.candidate.metadata.get("api_name")
    if wanted is None and len(endpoints) == 1:
        return next(iter(endpoints.items()))
    name = f"/{str(wanted).lstrip('/')}"
    if wanted is not None and name in endpoints:
        return name, endpoints[name]
    problem = "api_name is needed" if wanted is None else f"the Space has no endpoint {wanted}"
    raise UnsupportedError(f"{problem}; its endpoints: {', '.join(endpoints) or 'none'}")


def _arguments(endpoint: Endpoint, call: Call, upload: Callable[[str], Any]) -> dict[str, Any]:
    """The values of an endpoint's parameters by name; `upload` converts a path for a file component.

    Raises:
        UnsupportedError: an argument or option has no parameter, or a parameter gets no value.
    """
    parameters = {item["parameter_name"]: item for item in endpoint["parameters"]}
    metadata = call.candidate.metadata
    options = dict(metadata.get("options") or {})
    inputs = dict(metadata.get("inputs") or {name: name for name in parameters if name in call.inputs})
    if unknown := [name for name in (*inputs, *options) if name not in parameters]:
        raise UnsupportedError(
            f"the Space has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}"
        )
    values: dict[str, Any] = {"seed": call.settings.seed} if "seed" in parameters else {}
    for name, argument in inputs.items():
        if (value := call.inputs.get(argument)) is not None:
            values[name] = _value(value, _component(parameters[name]), upload)
    values |= options
    sent = set(inputs.values())
    if unsent := [arg.name for arg in call.spec.inputs if arg.required and arg.name not in sent]:
        raise UnsupportedError(
            f"no parameter of the Space takes {', '.join(unsent)}: name it in metadata, as inputs; "
            f"it has {', '.join(parameters)}"
        )
    for name, item in parameters.items():
        if name not in values and not item.get("parameter_has_default"):
            raise UnsupportedError(f"the Space needs a value for {name}: name it in metadata, as an option")
    return values


def _value(value: Any, component: str, upload: Callable[[str], Any]) -> Any:
    if path := getattr(value, "path", None):
        file = upload(str(path))
        return {"background": file, "layers": [], "composite": None} if component == "imageeditor" else file
    if not isinstance(value, list | tuple):
        return value
    items = [_value(item, component, upload) for item in value]
    return ", ".join(map(str, items)) if component == "textbox" else items


def read_output(endpoint: Endpoint, result: Any, call: Call, downloads: Path) -> Any:
    """The first return value of an endpoint as a raw output of the task.

    Raises:
        UnsupportedError: its component is of another kind, or the value cannot be read.
    """
    returns = endpoint["returns"]
    value = result[0] if isinstance(result, list | tuple) and len(returns) > 1 else result
    component = _component(returns[0]) if returns else "nothing"
    reader = READERS.get(component)
    if reader is None or value is None:
        raise UnsupportedError(f"the Space returned {component}, which is not supported for {call.spec.name}")
    try:
        return reader(value, call, downloads)
    except (InputError, BadInputError) as error:
        raise UnsupportedError(f"the Space sent a file that cannot be read: {error}") from error


def _component(item: Mapping[str, Any]) -> str:
    return str(item.get("component", "")).lower()


def _text(value: Any, call: Call, downloads: Path) -> Any:
    return answer_output(call.spec, str(value))


def _json(value: Any, call: Call, downloads: Path) -> Any:
    """Plain JSON; texts that name files become images, so that no other file of this machine is read later.
    Plain JSON; texts that name files become images, so that no other file of this machine is read later."""
    match value:
        case Mapping():
            return {name: _json(part, call, downloads) for name, part in value.items()}
        case list() | tuple():
            return [_json(part, call, downloads) for part in value]
        case str() if existing_file(value) is not None:
            return _image(value, call, downloads)
        case _:
            return value


def _label(value: Any, call: Call, downloads: Path) -> list[dict[str, Any]]:
    """The value of a Label component: a label, with or without the confidences of all."""
    if not isinstance(value, Mapping) or "label" not in value:
        raise UnsupportedError("the Space returned no label")
    rated = value.get("confidences") or [{"label": value["label"], "confidence": 1.0}]
    return [{"label": str(one["label"]), "score": float(one["confidence"])} for one in rated]


def _downloaded(value: Any, downloads: Path) -> Path:
    """The downloaded file that a component's value names."""
    first = value[0] if isinstance(value, list) and value else value
    while isinstance(first, Mapping):
        first = next((first[name] for name in ("path", "image", "video") if first.get(name)), None)
    path = Path(first) if isinstance(first, str) else None
    if path is None or not path.resolve().is_relative_to(downloads.resolve()):
        raise UnsupportedError("the Space's answer names a file that it did not send")
    return path


def _image(value: Any, call: Call, downloads: Path) -> Any:
    from PIL import Image

    path = _downloaded(value, downloads)
    check_pixels(path, call.settings.max_pixels)
    with Image.open(path) as image:
        image.load()
        return image.copy()


def _audio(value: Any, call: Call, downloads: Path) -> dict[str, Any]:
    samples, rate = decode_audio(_downloaded(value, downloads))
    return {"audio": samples.mean(axis=1), "sampling_rate": rate}


def _file(value: Any, call: Call, downloads: Path) -> dict[str, str]:
    """A copy of the file outside the temporary folder."""
    path = _downloaded(value, downloads)
    copy = call.new_path(path.suffix)
    shutil.copyfile(path, copy)
    return {"path": str(copy)}


READERS: dict[str, Callable[[Any, Call, Path], Any]] = {
    **dict.fromkeys(("textbox", "text", "markdown", "code", "html"), _text),
    "json": _json,
    "label": _label,
    **dict.fromkeys(("image", "gallery", "imageeditor"), _image),
    "audio": _audio,
    **dict.fromkeys(("video", "model3d", "file"), _file),
}
"""Readers of return values by component."""
