"""The expert of benchmarks/experts.py: it waits as many seconds as the text of its call says.

    subprocess.Popen(["jarvis", "experts"], env=environment(folder))      # a server that has it

A module of its own, since the servers import it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


class WaitingExpert:
    """Waits, one call at a time, and returns its process."""

    nbytes = 0

    def __call__(self, call: Call) -> str:
        time.sleep(float(call.inputs["text"]))
        return str(os.getpid())


class WaitingBackend(LocalBackend):
    """Loads WaitingExperts."""

    name = "waiting"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.backend == self.name else "it is for another backend"

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> WaitingExpert:
        return WaitingExpert()


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a process to which the backend is an installed package, described in a folder."""
    (package := folder / "waiting-1.0.dist-info").mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: waiting\nVersion: 1.0\n")
    entry = "[jarvis_agent.backends]\nwaiting = waiting_expert:WaitingBackend\n"
    (package / "entry_points.txt").write_text(entry)
    here = Path(__file__).parent
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder, here, here.parent)))} | variables
