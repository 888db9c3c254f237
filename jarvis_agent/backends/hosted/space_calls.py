"""What an endpoint of a Gradio Space is given for a task, and its answer as a raw output.

    name, endpoint = choose_endpoint(client.view_api(return_format="dict"), call)
    values = arguments(endpoint, call, handle_file)
    raw = raw_output(endpoint, result, call, downloads)

An argument of the task goes to the parameter that the user named (`metadata["inputs"]`), else to the one of
its name, else to the first whose component takes its kind. Spaces are strangers' programs: of the files that
their answers name only those count that were downloaded from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.chat_messages import answer_of
from jarvis_agent.core.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.media.files import check_pixels, decode_audio
from jarvis_agent.backends.outputs.validators import existing
from jarvis_agent.core.tasks.spec import ARG_ALIASES, Modality, TaskSpec

Endpoint = Mapping[str, Any]
"""An endpoint as the Space describes it: `parameters` and `returns`."""

_TEXTS = ("textbox", "text", "markdown", "code", "html")

_TAKEN_BY: dict[str, tuple[str, ...]] = {
    "text": (*_TEXTS, "dropdown"),
    "data": ("json", *_TEXTS, "number", "slider"),
    "image": ("image", "imageeditor", "file"),
    "audio": ("audio", "file"),
    "video": ("video", "file"),
    "3d": ("model3d", "file"),
    "table": ("file",),
    "file": ("file",),
}
"""The components that take an argument of a kind, the most fitting first."""


def choose_endpoint(api: Mapping[str, Any], call: Call) -> tuple[str, Endpoint]:
    """The endpoint that the user named, else the first that takes what the task gives and makes its kind.

    Raises:
        UnsupportedError: there is none; the message names those that there are.
    """
    endpoints: Mapping[str, Endpoint] = api["named_endpoints"]
    wanted = call.candidate.metadata.get("api_name")
    if wanted is not None:
        name = f"/{str(wanted).lstrip('/')}"
        if name in endpoints:
            return name, endpoints[name]
    elif found := next((name for name in endpoints if _fits(endpoints[name], call)), None):
        return found, endpoints[found]
    what = wanted or f"for {call.spec.name}"
    there = ", ".join(endpoints) or "none"
    raise UnsupportedError(f"the Space has no endpoint {what}; those that it has (api_name): {there}")


def _fits(endpoint: Endpoint, call: Call) -> bool:
    try:
        arguments(endpoint, call, str)
    except UnsupportedError:
        return False
    return any(_component(item) in READERS[made_kind(call.spec)] for item in endpoint["returns"])


def arguments(endpoint: Endpoint, call: Call, upload: Callable[[str], Any]) -> dict[str, Any]:
    """The values of an endpoint's parameters by name.

    Args:
        upload: makes a path the value of a file component.

    Raises:
        UnsupportedError: an argument finds no parameter, or a parameter gets no value.
    """
    parameters = {item["parameter_name"]: item for item in endpoint["parameters"]}
    options = dict(call.candidate.metadata.get("options") or {})
    if unknown := [name for name in options if name not in parameters]:
        raise UnsupportedError(f"the Space takes no {', '.join(unknown)}; it takes {', '.join(parameters)}")
    given = {name: value for name, value in call.inputs.items() if value is not None}
    places = _places({name: item for name, item in parameters.items() if name not in options}, given, call)
    values = {
        place: _value(given[argument], _component(parameters[place]), upload)
        for argument, place in places.items()
    }
    seed = {"seed": call.settings.seed} if "seed" in parameters else {}
    values = {**seed, **values, **options}
    for name, item in parameters.items():
        if name not in values and not item.get("parameter_has_default"):
            raise UnsupportedError(f"the Space wants a value for {name}: give it in metadata, as an option")
    return values


def _places(parameters: Mapping[str, Any], given: Mapping[str, Any], call: Call) -> dict[str, str]:
    """The parameter of each argument."""
    named = {argument: name for name, argument in (call.candidate.metadata.get("inputs") or {}).items()}
    places: dict[str, str] = {argument: name for argument, name in named.items() if argument in given}
    for name in parameters:
        argument = name if name in given else ARG_ALIASES.get(name, "")
        if argument in given and argument not in places:
            places[argument] = name
    for argument in given:
        if argument in places:
            continue
        arg = call.spec.arg(argument)
        takers = _TAKEN_BY.get(arg.kind if arg else "text", ())
        free = [name for name in parameters if name not in places.values()]
        fitting = (name for kind in takers for name in free if _component(parameters[name]) == kind)
        place = next(fitting, None)
        if place is not None:
            places[argument] = place
        elif arg is not None and arg.required:
            raise UnsupportedError(f"the Space has no parameter for the {arg.kind} {argument}")
    if wrong := [name for name in places.values() if name not in parameters]:
        raise UnsupportedError(
            f"the Space has no parameter {', '.join(wrong)}; it takes {', '.join(parameters)}"
        )
    return places


def _value(value: Any, component: str, upload: Callable[[str], Any]) -> Any:
    if path := getattr(value, "path", None):
        file = upload(str(path))
        return {"background": file, "layers": [], "composite": None} if component == "imageeditor" else file
    if not isinstance(value, list | tuple):
        return value
    items = [_value(item, component, upload) for item in value]
    return ", ".join(map(str, items)) if component in _TEXTS else items


def made_kind(spec: TaskSpec) -> Modality:
    """The kind that a task's raw output is of: of a detection it is the boxes, not the picture of them."""
    return "data" if "data" in spec.outputs and spec.outputs[0] != "text" else spec.outputs[0]


def raw_output(endpoint: Endpoint, result: Any, call: Call, downloads: Path) -> Any:
    """The first part of an answer that is of the kind which the task makes, as a raw output.

    Raises:
        UnsupportedError: no part is, or it is not what its component says.
    """
    returns = endpoint["returns"]
    parts = result if isinstance(result, list | tuple) and len(returns) > 1 else [result]
    readers = READERS[made_kind(call.spec)]
    for item, value in zip(returns, parts, strict=False):
        reader = readers.get(_component(item))
        if reader is None or value is None:
            continue
        try:
            return reader(value, call, downloads)
        except (InputError, BadInputError) as error:
            raise UnsupportedError(f"the Space sent what can not be read: {error}") from error
    made = ", ".join(_component(item) for item in returns) or "nothing"
    raise UnsupportedError(f"the Space answers with {made}, and {made_kind(call.spec)} is wanted")


def _component(item: Mapping[str, Any]) -> str:
    return str(item.get("component", "")).lower()


def _text(value: Any, call: Call, downloads: Path) -> Any:
    return answer_of(call.spec, str(value))


def _json(value: Any, call: Call, downloads: Path) -> Any:
    """Plain JSON, in which the files that the Space sent are opened as images.

    What reads it later opens texts that name files, so that no other file of this machine may be named.
    """
    match value:
        case Mapping():
            return {name: _json(part, call, downloads) for name, part in value.items()}
        case list() | tuple():
            return [_json(part, call, downloads) for part in value]
        case str() if existing(value) is not None:
            return _image(value, call, downloads)
        case _:
            return value


def _label(value: Any, call: Call, downloads: Path) -> list[dict[str, Any]]:
    """What a Label component shows: a label, with or without the confidences of all."""
    if not isinstance(value, Mapping) or "label" not in value:
        raise UnsupportedError("the Space's label is none")
    rated = value.get("confidences") or [{"label": value["label"], "confidence": 1.0}]
    return [{"label": str(one["label"]), "score": float(one["confidence"])} for one in rated]


def _downloaded(value: Any, downloads: Path) -> Path:
    """The file that a component's value names, as it was downloaded."""
    first = value[0] if isinstance(value, list) and value else value
    while isinstance(first, Mapping):
        first = next((first[name] for name in ("path", "image", "video") if first.get(name)), None)
    path = Path(first) if isinstance(first, str) else None
    if path is None or not path.resolve().is_relative_to(downloads.resolve()):
        raise UnsupportedError("the Space's answer names no file that it sent")
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
    """A file that outlives the folder of the downloads."""
    path = _downloaded(value, downloads)
    kept = call.new_path(path.suffix)
    shutil.copyfile(path, kept)
    return {"path": str(kept)}


Reader = Callable[[Any, Call, Path], Any]

READERS: dict[Modality, dict[str, Reader]] = {
    "text": {**dict.fromkeys(_TEXTS, _text), "json": _json},
    "data": {"label": _label, "json": _json},
    "image": {"image": _image, "gallery": _image, "imageeditor": _image, "file": _image},
    "audio": {"audio": _audio, "file": _audio},
    "video": {"video": _file, "file": _file},
    "3d": {"model3d": _file, "file": _file},
    "table": {"file": _file},
    "file": {"file": _file},
}
"""The components whose value is of a kind, and what reads it."""
