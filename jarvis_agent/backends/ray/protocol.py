"""What a driver and a replica tell each other: a call, and its raw output or error.

parts = write_call(call)                        # the driver
call = read_call(parts, new_path)               # the replica
parts = write_reply(node, raw=raw)              # the replica; or write_reply(node, error=error)
raw = read_reply(parts, call)                   # the driver; raises the error
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from jarvis_agent import __version__
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import existing_file
from jarvis_agent.backends.ray.wire import Parts, pack, unpack
from jarvis_agent.core.errors import (
    ERROR_POLICIES,
    CircuitOpenError,
    ConfigError,
    ExpertError,
    JarvisError,
    UnsupportedError,
    describe_error,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.core.types import Candidate

_SENT = (
    "allow_pickle",
    "device",
    "dtype",
    "licenses",
    "max_download",
    "max_file_bytes",
    "max_pixels",
    "max_seconds",
    "offline",
    "seed",
    "task_timeout",
    "trust_remote_code",
)
"""Settings of the user that hold on the nodes, besides the token of the Hub."""

_SPEC = TypeAdapter(TaskSpec)
_ERRORS = {
    kind.__name__: kind
    for kind in (*ERROR_POLICIES, CircuitOpenError, ConfigError, UnsupportedError)
    if kind is not JarvisError
}


def write_call(call: Call) -> list[bytes]:
    """Encode a call with the files of its inputs. Blocks while it reads them."""
    settings = {name: getattr(call.settings, name) for name in _SENT}
    message = {
        "version": __version__,
        "spec": _SPEC.dump_python(call.spec, mode="json"),
        "candidate": call.candidate.model_dump(mode="json"),
        "settings": settings | {"hf_token": call.settings.token},
        "inputs": call.inputs,
        "hints": call.hints,
    }
    return pack(message)


def read_call(parts: Parts, new_path: Callable[[str], Path], memory: int) -> Call:
    """Decode a call. `memory`: bytes of weights that may be loaded, in RAM and on a GPU.

    Raises:
        UnsupportedError: the driver has another version of this package.
    """
    message = unpack(parts, new_path)
    if message["version"] != __version__:
        raise UnsupportedError(
            f"the cluster has version {__version__} of langchain-hugginggpt, and its caller "
            f"{message['version']}; install the same version on both"
        )
    candidate = Candidate.model_validate(message["candidate"])
    return Call(
        spec=_SPEC.validate_python(message["spec"]),
        candidate=_found_here(candidate),
        inputs=message["inputs"],
        new_path=new_path,
        settings=Settings(**message["settings"], memory_budget=memory, gpu_memory_budget=memory),
        hints=message["hints"],
    )


def _found_here(candidate: Candidate) -> Candidate:
    """The candidate as this node finds it: weights in the caller's cache are looked up or downloaded here."""
    path = candidate.path
    if path is None or path.exists():
        return candidate.model_copy(update={"local": path is not None})
    if any(part.startswith("models--") for part in path.parts):
        return candidate.model_copy(update={"path": None, "local": False})
    raise UnsupportedError(
        f"{candidate.id} is at {path} on its caller's machine only; put it at the same path of every node, "
        "or on the Hub"
    )


def write_reply(
    node: str, *, raw: Any = None, notes: Sequence[str] = (), error: Exception | None = None
) -> list[bytes]:
    """Encode what a replica on this node computed, or why it failed."""
    if error is None:
        return pack({"node": node, "raw": raw, "notes": notes})
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in _ERRORS), "")
    return pack({"node": node, "error": kind, "message": describe_error(error)})


def read_reply(parts: Parts, call: Call) -> Any:
    """The raw output of a call; its node is added to the call's trace, and its notes to the call.

    Raises:
        JarvisError: the call failed. An error whose class has no policy of its own is an ExpertError.
    """
    reply = unpack(parts, call.new_path)
    if reply["node"]:
        call.trace["node"] = reply["node"]
    raise_error(reply)
    if not MEDIA.isdisjoint(call.spec.outputs):
        _check_texts(reply["raw"], call.candidate.id)
    call.notes.extend(reply["notes"])
    return reply["raw"]


def _check_texts(raw: Any, model: str) -> None:
    """Refuse the paths of files of this machine. A file that a node sends is written here, and is a Path."""
    if isinstance(raw, str) and existing_file(raw):
        raise UnsupportedError(f"the answer of {model} names a file that it did not send")
    if isinstance(raw, Mapping):
        raw = list(raw.values())
    if isinstance(raw, list):
        for item in raw:
            _check_texts(item, model)


def raise_error(reply: Mapping[str, Any]) -> None:
    """Raise the error of a decoded reply, if it has one."""
    if "error" in reply:
        raise _ERRORS.get(reply["error"], ExpertError)(reply["message"])


def last_line(text: str) -> str:
    """The last line of an error of Ray, below the traceback of another process; without terminal colours."""
    return re.sub(r"\x1b\[\d+m", "", (text.strip().splitlines() or [""])[-1]).strip()
