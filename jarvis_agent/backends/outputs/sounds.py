"""The adapter of sounds: whatever they come as, a WAV file with its rate and length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.backends.outputs.files import made_file, save_audio, signed_wav, wav_facts
from jarvis_agent.backends.outputs.validators import UnexpectedError, number, rows
from jarvis_agent.backends.outputs.adapted import Adapted
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call


def sound(raw: Any, call: Call) -> Adapted:
    """{audio, sampling_rate}, a list of those (as of source separation, with labels), or {path}.

    The output has sampling_rate in Hz, duration in seconds, and path; a list of such if there are several.
    """
    if isinstance(raw, str | Path) or (isinstance(raw, Mapping) and "path" in raw):
        return _from_file(made_file(raw, "audio", call), call)
    found: list[dict[str, Any]] = []
    files: list[Resource] = []
    for row in rows(raw, "audio", "sampling_rate"):
        label, rate = row.get("label"), int(number(row["sampling_rate"]))
        file, seconds = save_audio(row["audio"], rate, call, str(label or call.spec.name))
        files.append(file)
        heard = _facts(file, rate, seconds)
        found.append(heard if label is None else {"label": str(label), **heard})
    if not found:
        raise UnexpectedError("{audio, sampling_rate}")
    summary = ", ".join(f"{row['duration']:.1f} s of sound" for row in found)
    return Adapted(found[0] if len(found) == 1 else found, summary, tuple(files))


def _from_file(file: Resource, call: Call) -> Adapted:
    """A sound that the backend wrote: WAV with its own samples, other formats made WAV."""
    from jarvis_agent.media.files import decode_audio

    assert file.path is not None
    facts = wav_facts(file.path)
    if facts is None:
        try:
            samples, rate = decode_audio(file.path)
        except BadInputError as error:
            raise UnexpectedError(f"sound that can be read ({error})") from error
        file, seconds = save_audio(samples, rate, call, call.spec.name)
    else:
        rate, seconds = facts
        file = signed_wav(file, call)
    return Adapted(_facts(file, rate, seconds), f"{seconds:.1f} s of sound", (file,))


def _facts(file: Resource, rate: int, seconds: float) -> dict[str, Any]:
    return {"sampling_rate": rate, "duration": round(seconds, 3), "path": str(file.path)}
