"""What the tests of hosted models share: calls of one model, and files as bytes."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

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
    names = iter(range(99))
    return Call(
        TASKS[task],
        model or candidate(task),
        inputs,
        lambda suffix: tmp_path / f"{next(names)}{suffix}",
        SETTINGS,
    )


async def run(call: Call) -> Any:
    return await HostedBackend(SETTINGS).run(call)
