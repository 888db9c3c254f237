"""What an agent and an expert server tell each other: a call, and its raw output or error.

body = write_call(call)                         # the agent
call, depth = read_call(body, new_path, settings)    # the server
reply = write_reply(node, raw=raw)              # the server; or write_reply(node, error=error)
raw = read_reply(reply, call)                   # the agent; raises the error
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from jarvis_agent import __version__
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.experts.wire import read_header, read_message, write_message
from jarvis_agent.backends.hub.snapshot import found_in_cache
from jarvis_agent.backends.outputs.validators import existing_file
from jarvis_agent.core.errors import (
    ERROR_POLICIES,
    BadInputError,
    CircuitOpenError,
    ConfigError,
    ExpertError,
    JarvisError,
    TransientError,
    UnsupportedError,
    describe_error,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.limits import check_inputs

PROTOCOL = 2
"""Changes when an agent and a server of different versions would misunderstand each other."""

_LEAST = ("max_download", "max_file_bytes", "max_pixels", "max_seconds", "task_timeout")
_BOTH = ("allow_pickle", "trust_remote_code")
_SENT = (*_LEAST, *_BOTH, "offline", "dtype", "seed", "hf_token")
"""Settings of the agent that hold in the server, within its own."""

_PLACES = frozenset({"path", "local"})
"""Fields of a candidate that say where the agent's machine has it."""

_ERRORS = {
    kind.__name__: kind
    for kind in (*ERROR_POLICIES, CircuitOpenError, ConfigError, UnsupportedError)
    if kind is not JarvisError
}


def write_call(call: Call, depth: int | None = None) -> bytes:
    """Encode a call with the files of its inputs. Blocks while it reads them.

    Args:
        depth: number of tasks that run before the call, whose model is only loaded; None: it is run.
    """
    candidate = call.candidate.model_dump(mode="json", exclude=set(_PLACES), exclude_defaults=True)
    metadata = {name: one for name, one in call.candidate.metadata.items() if name != "revisions"}
    model = call.candidate.model_dump(include={"backend", "id", "revision", "size"})
    message = {
        "task": call.spec.name,
        "candidate": {**candidate, "metadata": metadata},
        "settings": {name: getattr(call.settings, name) for name in _SENT}
        | {"hf_token": call.settings.token},
        "inputs": call.inputs,
        "hints": call.hints,
        "depth": depth,
    }
    return write_message(message, protocol=PROTOCOL, version=__version__, model=model)


def read_model(body: bytes) -> Mapping[str, Any]:
    """The model of a call: its backend, id, revision and size (None: unknown). Its files are not read.

    Raises:
        BadInputError: this is no call.
        UnsupportedError: its caller speaks another version of the protocol.
    """
    header = read_header(body)
    if header.get("protocol") != PROTOCOL:
        raise UnsupportedError(
            f"the expert server speaks protocol {PROTOCOL} (langchain-hugginggpt {__version__}), and its "
            f"caller {header.get('protocol')} ({header.get('version')}); update the older one"
        )
    model: Mapping[str, Any] = header["model"]
    return model


def read_call(body: bytes, new_path: Callable[[str], Path], settings: Settings) -> tuple[Call, int | None]:
    """Decode a call and its depth; `settings` are those of the server.

    Raises:
        BadInputError: it is malformed, or names a path.
        InputError: a file exceeds a limit of the settings.
        UnsupportedError: the server does not know its task, or its version of the protocol.
    """
    read_model(body)
    message = read_message(body, new_path)
    try:
        spec = TASKS.get(message["task"])
        if spec is None:
            raise UnsupportedError(f"the expert server does not know the task {str(message['task'])[:80]!r}")
        candidate, inputs = message["candidate"], message["inputs"]
        media = _texts([inputs.get(arg.name) for arg in spec.inputs if arg.kind in MEDIA])
        if named := [*media, *filter(_exists, _texts(candidate["metadata"]))]:
            what = f"not {named[0][:80]!r}"
            raise BadInputError(f"the expert server reads no paths and URLs; send the file, {what}")
        known = {
            name: one for name, one in candidate.items() if name in Candidate.model_fields.keys() - _PLACES
        }
        call = Call(
            spec=spec,
            candidate=found_in_cache(Candidate(**known)),
            inputs=inputs,
            new_path=new_path,
            settings=_within(settings, message["settings"]),
            hints=message["hints"],
        )
        check_inputs(call.inputs, call.settings)
        return call, None if message["depth"] is None else int(message["depth"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInputError(f"the call cannot be read: {describe_error(error)}") from error


def _within(own: Settings, asked: dict[str, Any]) -> Settings:
    """What a caller asks for, as far as the server allows it."""
    asked = {name: getattr(own, name) for name in _SENT} | asked
    least = {name: min(getattr(own, name), asked[name]) for name in _LEAST}
    both = {name: getattr(own, name) and bool(asked[name]) for name in _BOTH}
    given = {"offline": own.offline or bool(asked["offline"]), "seed": int(asked["seed"])}
    token = SecretStr(asked["hf_token"]) if isinstance(asked["hf_token"], str) else own.hf_token
    return own.model_copy(update={**least, **both, **given, "dtype": str(asked["dtype"]), "hf_token": token})


def write_reply(node: str, raw: Any = None, notes: Sequence[str] = ()) -> bytes:
    """Encode what a server on this node computed."""
    return write_message({"node": node, "raw": raw, "notes": notes})


def write_error(node: str, error: Exception, clean: Callable[[str], str] = str) -> bytes:
    """Encode why a call failed; `clean` takes out of the message what its caller must not learn."""
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in _ERRORS), "")
    return write_message({"node": node, "error": kind, "message": clean(describe_error(error))})


def read_reply(body: bytes, call: Call, address: str) -> Any:
    """The raw output of a call; the server is added to the call's trace, and its notes to the call.

    Raises:
        TransientError: the reply is incomplete.
        JarvisError: the call failed. An error whose class has no policy of its own is an ExpertError.
    """
    try:
        reply = read_message(body, call.new_path)
    except BadInputError as error:
        raise TransientError(f"the expert server {address} did not end its answer: {error}") from error
    call.trace["endpoint"] = f"{address} ({reply['node']})" if reply["node"] else address
    if "error" in reply:
        if kind := _ERRORS.get(reply["error"]):
            raise kind(reply["message"])
        raise ExpertError(f"the expert server {address} failed: {reply['message']}")
    if not MEDIA.isdisjoint(call.spec.outputs) and any(map(existing_file, _texts(reply["raw"]))):
        # A file that a server sends is written here, and is a Path.
        raise UnsupportedError(f"the answer of {call.candidate.id} names a file that it did not send")
    call.notes.extend(reply["notes"])
    return reply["raw"]


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long for a name, NUL, no such user
        return False


def _texts(value: Any) -> list[str]:
    """The texts in plain JSON, without keys."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
