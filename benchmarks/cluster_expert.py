"""The expert of benchmarks/cluster.py: it waits as many seconds as the text of its call says.

A module of its own, since the nodes of the cluster import it.
"""

from __future__ import annotations

import os
import time

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
