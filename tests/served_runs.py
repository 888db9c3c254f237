"""A server in its own processes, to be killed: tests/served_runs.py FOLDER WORKERS HOST SECONDS BEAT [URL]

Its agent has the plan of `killed_runs`, whose task 3 waits until FOLDER/gate exists.
"""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from killed_runs import random_plan, worker
from stages import FakeStage
from waiting import wait_until

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import run_server, runs


def make_agent(folder: Path, seconds: float = 0.01, beat: float | None = None) -> JarvisAgent:
    """The agent of one process, which looks at the runs of others every `beat` seconds."""
    runs.BEAT_S = beat or runs.BEAT_S
    planner: Any = FakeStage(random_plan)
    return JarvisAgent(
        tools=[worker(folder / "log", folder / "gate", seconds)],
        planner=planner,
        settings=Settings(output_dir=folder / "out", offline=True),
    )


def _listens(address: httpx.URL) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection((address.host, address.port or 80)):
        return True
    return False


@contextmanager
def served_runs(
    folder: Path,
    *,
    workers: int = 1,
    url: str | None = None,
    host: str = "127.0.0.1",
    seconds: float = 0.01,
    beat: float = 0.2,
    prefix: Sequence[str] = (),
) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A client of a running server, and the server's process; `prefix` are words before its command."""
    options = [str(folder), str(workers), host, str(seconds), str(beat), *([url] if url else [])]
    command = [*prefix, sys.executable, __file__, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines: Any = process.stderr
            address = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
            wait_until(lambda: _listens(httpx.URL(address)))  # Workers do when they have started.
            with httpx.Client(base_url=address, timeout=60) as client:
                yield client, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


if __name__ == "__main__":
    own_folder, own_workers, own_host, own_seconds, own_beat, *own_url = sys.argv[1:]
    run_server(
        partial(make_agent, Path(own_folder), float(own_seconds), float(own_beat)),
        host=own_host,
        port=0,
        settings=ServerSettings(checkpoints=own_url[0] if own_url else None, runs_per_minute=10_000),
        workers=int(own_workers),
        insecure=True,
    )
