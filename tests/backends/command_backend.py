"""A local backend for tests of expert servers, which imports no library; its texts are small commands."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Generation, is_cancelled, listed
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core import errors
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


class CommandExpert:
    """Does what the text of a call says. Its answer ends with "by PROCESS on NODE with MODELS in memory"."""

    loaded: ClassVar[WeakSet[CommandExpert]] = WeakSet()

    def __init__(self, size: int | None) -> None:
        self.nbytes = size or 0
        self.loaded.add(self)

    def __call__(self, call: Call) -> str:
        command, _, value = call.inputs["text"].partition(" ")
        said = getattr(self, command)(value)
        sizes = [one.nbytes for one in self.loaded]
        return f"{said} by {os.getpid()} on {os.getppid()} with {sum(map(bool, sizes))} in memory"

    def echo(self, value: str) -> str:
        return value

    def wait(self, seconds: str) -> None:
        time.sleep(float(seconds))

    def hold(self, folder: str) -> None:
        """Name its node in the folder, and wait for the file "go" in it, or to be cancelled."""
        Path(folder, str(os.getppid())).touch()
        with listed(Generation("org/model", total=9, done=4)):
            while not Path(folder, "go").exists():
                if is_cancelled():
                    Path(folder, "cancelled").touch()
                    return
                time.sleep(0.01)

    def die(self, file: str) -> None:
        """Kill the process, unless the file says that it did."""
        if not Path(file).exists():
            Path(file).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, why: str) -> None:
        """Raise an error: the name of its class, and a message."""
        name, _, message = why.partition(" ")
        raise getattr(errors, name)(message)

    def refuse(self, why: str) -> None:
        """As `fail`, with words of a library."""
        name, _, words = why.partition(" ")
        raise getattr(errors, name)("the model refuses this", detail=words)


class CommandBackend(LocalBackend):
    """Loads CommandExperts. A server knows the models of `command_models`."""

    name = "command"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.backend == self.name else "it is for another backend"

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> CommandExpert:
        return CommandExpert(candidate.size)


def command_models(folder: Path) -> Path:
    """A file of models for the backend: org/model, and org/large of 5 GB."""
    models = [{"id": "org/model"}, {"id": "org/large", "size": 5 * 10**9}]
    shared = {"tasks": ["text-generation", "image-text-to-text"], "backend": "command", "local": True}
    (file := folder / "models.json").write_text(json.dumps([{**model, **shared} for model in models]))
    return file
