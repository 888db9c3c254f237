"""Builders for the tests of hosted models: calls of one model, and files as bytes."""

import base64
import io
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

from result_bench import a_call

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.inference_providers import HostedBackend
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

SETTINGS = Settings(hf_token="hf_secret", offline=False, task_timeout=25)
LABELS = [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]


def png(size: tuple[int, int] = (4, 3), mode: str = "RGB") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, size, 255 if mode == "L" else "white").save(file, "PNG")
    return file.getvalue()


def wav(seconds: float = 0.1, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(b"\0\0" * int(seconds * rate))
    return file.getvalue()


def candidate(task: str, *providers: str, **fields: Any) -> Candidate:
    return Candidate(id="org/model", task=task, providers=providers or ("hf-inference",), **fields)


def call_of(task: str, tmp_path: Path, model: Candidate | None = None, **inputs: Any) -> Call:
    made = a_call(TASKS[task], tmp_path, **inputs)
    return replace(made, candidate=model or candidate(task), settings=SETTINGS)


async def run(call: Call) -> Any:
    return await HostedBackend(SETTINGS).run(call)


B64_IMAGE = base64.b64encode(png()).decode()
