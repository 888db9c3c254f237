"""A server in its own processes, to be killed by a test: python tests/served_runs.py FOLDER WORKERS [URL]

Its agent has the plan of `killed_runs`, whose task 3 waits until FOLDER/gate exists.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from killed_runs import random_plan, worker
from stages import FakeStage

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import run_server, runs


def make_agent(folder: Path) -> JarvisAgent:
    """The agent of one process, which looks at the runs of others often."""
    runs.BEAT_S = 0.2
    return JarvisAgent(
        tools=[worker(folder / "log", folder / "gate")],
        planner=FakeStage(random_plan),
        settings=Settings(output_dir=folder / "out", offline=True),
    )


@contextmanager
def served_runs(
    folder: Path, *, workers: int = 1, url: str | None = None
) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A client of a running server, and the server's process."""
    command = [sys.executable, __file__, str(folder), str(workers), *([url] if url else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines: Any = process.stderr
            address = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
            retrying = httpx.HTTPTransport(retries=10)  # Workers listen when they have started.
            with httpx.Client(base_url=address, timeout=60, transport=retrying) as client:
                yield client, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


if __name__ == "__main__":
    run_server(
        partial(make_agent, Path(sys.argv[1])),
        port=0,
        settings=ServerSettings(checkpoints=sys.argv[3] if len(sys.argv) > 3 else None),
        workers=int(sys.argv[2]),
    )
