"""What survives: servers that are killed, stopped or cut off while they work on a run of eight tasks.

    python benchmarks kills --points 12

Each run must end as "done" by itself, with its events numbered without a gap, and no task that had ended may
be done twice. The cut needs Linux, root and `ip`; PostgreSQL must be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from langchain_core.tools import StructuredTool
from scheduling import Figure

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import run_server

sys.path.append(str(Path(__file__).parents[1] / "tests"))

TASK_S = 0.15
LIMIT_S = 60
NETWORK, NAMESPACE = "10.77.77", "jarvis-cut"


def make_agent(folder: Path) -> JarvisAgent:
    """An agent whose tasks write that they were done, and make a file."""
    from killed_runs import random_plan
    from stages import FakeStage

    async def work(text: str) -> list[dict[str, Any]]:
        await asyncio.sleep(TASK_S)
        with (folder / "log").open("a") as log:
            log.write(" ".join(text.split()[:2]) + "\n")
        content = base64.b64encode(b"GIF89a" + text.encode()).decode()
        return [
            {"type": "text", "text": text},
            {"type": "image", "base64": content, "mime_type": "image/gif"},
        ]

    tool = StructuredTool.from_function(coroutine=work, name="work", description="Work on a text.")
    settings = Settings(output_dir=folder / "out", offline=True)
    planner: Any = FakeStage(random_plan)
    return JarvisAgent(tools=[tool], planner=planner, settings=settings)


@dataclass
class Server:
    """A server in its own process."""

    folder: Path
    url: str | None
    prefix: Sequence[str] = ()
    host: str = "127.0.0.1"
    address: str = field(init=False)
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Server:
        """Start it, and wait until it listens."""
        here = [sys.executable, str(Path(__file__).parent), "kills", "--serve", str(self.folder), self.host]
        command = [*self.prefix, *here, *([self.url] if self.url else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = (re.search(r"http://[\d.:]+", line) for line in self.process.stderr)
        self.address = next(match[0] for match in found if match)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()

    def ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        """The response to a request."""
        options: Any = {"json": body} if body else {}
        return httpx.request(method, self.address + path, timeout=LIMIT_S, **options)

    def start(self, thread: str) -> str:
        """The id of a new run."""
        response = self.ask("POST", "/runs", input="work", thread=thread)
        run: str = response.json()["id"]
        return run

    def events(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The ids and the data of the events of a run, as they come."""
        with httpx.stream("GET", f"{self.address}/runs/{run}/events", timeout=LIMIT_S) as answer:
            number = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                elif line.startswith("data: "):
                    yield number, json.loads(line[6:])

    def follow(self, run: str, stop: Callable[[int], bool]) -> set[int]:
        """The tasks that have ended when an event comes for whose number `stop` is true, or the run's end."""
        ended = set()
        for number, (_, event) in enumerate(self.events(run), 1):
            if event.get("kind") == "finished":
                ended.add(event["task"]["id"])
            if stop(number):
                break
        return ended


@dataclass
class Outcome:
    """What became of runs."""

    runs: int = 0
    lost: int = 0
    gaps: int = 0
    ended: int = 0
    repeated: int = 0
    seconds: list[float] = field(default_factory=list)

    def check(self, server: Server, run: str, ended: set[int]) -> None:
        """Wait for the end of a run. `ended` are the tasks that had ended when its server was disturbed."""
        began = time.monotonic()
        events = list(server.events(run))
        self.seconds.append(time.monotonic() - began)
        info = events[-1][1]
        self.runs, self.lost = self.runs + 1, self.lost + (info["status"] != "done")
        self.gaps += [number for number, _ in events[:-1]] != [str(n) for n in range(1, len(events))]
        if info["status"] == "done":
            word = info["run"]["plan"]["tasks"][0]["args"]["text"].split()[0]
            lines = (server.folder / "log").read_text().splitlines()
            done = Counter(int(line.split()[1]) for line in lines if line.split()[0] == word)
            self.ended += len(ended)
            self.repeated += sum(done[task] > 1 for task in ended)

    def figures(self, name: str) -> list[Figure]:
        """What is expected of them."""
        return [
            Figure(f"{name}: lost runs of {self.runs}", self.lost, 0),
            Figure(f"{name}: runs with a gap in their events", self.gaps, 0),
            Figure(f"{name}: ended tasks that were done again, of {self.ended}", self.repeated, 0),
            Figure(f"{name}: until the run is done, at most", max(self.seconds), None, "s"),
        ]


def kills(folder: Path, url: str | None, points: int) -> list[Figure]:
    """A server that is killed at several points of a run, and started again."""
    outcome = Outcome()
    for point in range(points):
        with Server(folder, url) as server:
            run = server.start(f"kill {point}")
            at = 1 + point * 40 // points
            ended = server.follow(run, lambda number, at=at: number >= at)  # type: ignore[misc]
        with Server(folder, url) as server:
            outcome.check(server, run, ended)
    return outcome.figures("killed")


def starts(folder: Path, url: str | None, tries: int = 15) -> list[Figure]:
    """Two servers that are asked at once for a run on one thread."""
    wrong = 0
    with Server(folder, url) as one, Server(folder, url) as other, ThreadPoolExecutor(2) as both:
        for number in range(tries):
            asked = [
                both.submit(server.ask, "POST", "/runs", input="work", thread=f"start {number}")
                for server in (one, other)
            ]
            wrong += sorted(answer.result().status_code for answer in asked) != [202, 409]
    return [Figure(f"two starts at once: without exactly one winner, of {tries}", wrong, 0)]


def stands_still(folder: Path, url: str | None) -> list[Figure]:
    """A server that stands still for 20 s."""
    outcome, taken = Outcome(), 0
    with Server(folder, url) as one, Server(folder, url) as other:
        run = one.start("still")
        ended = one.follow(run, lambda number: number >= 24)
        one.process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            time.sleep(1)
            taken += other.ask("GET", f"/runs/{run}").json()["status"] != "running"
            taken += other.ask("POST", f"/runs/{run}/resume").status_code != 409
        one.process.send_signal(signal.SIGCONT)
        outcome.check(other, run, ended)
    name = "stood still for 20 s"
    return [Figure(f"{name}: looks at which its run was free, of 40", taken, 0), *outcome.figures(name)]


def restarts(folder: Path, postgres: Any, points: int = 4) -> list[Figure]:
    """PostgreSQL, restarted at several points of a run."""
    outcome, url = Outcome(), postgres.new_database()
    with Server(folder, url) as server:
        for point in range(points):
            run = server.start(f"restart {point}")
            at = 2 + 8 * point
            ended = server.follow(run, lambda number, at=at: number >= at)  # type: ignore[misc]
            postgres.stop()
            postgres.start()
            for _ in range(LIMIT_S):
                with suppress(httpx.HTTPError):
                    if server.ask("GET", f"/runs/{run}").status_code == 200:
                        break
                time.sleep(1)
            outcome.check(server, run, ended)
    return outcome.figures("PostgreSQL restarted")


@contextmanager
def other_machine() -> Iterator[Callable[[], None]]:
    """A network namespace that reaches this one at NETWORK.1, and what cuts it off."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", NAMESPACE)
    try:
        ip("link", "add", "jarvis0", "type", "veth", "peer", "name", "jarvis1", "netns", NAMESPACE)
        for inside, device, address in (([], "jarvis0", 1), (["-n", NAMESPACE], "jarvis1", 2)):
            ip(*inside, "address", "add", f"{NETWORK}.{address}/24", "dev", device)
            ip(*inside, "link", "set", device, "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield lambda: ip("link", "set", "jarvis0", "down")
    finally:
        ip("netns", "delete", NAMESPACE)


def cut_off(folder: Path, postgres: type[Any]) -> list[Figure]:
    """A server on another machine that loses its network. The output directory is a shared one."""
    outcome = Outcome()
    with ExitStack() as opened:
        cut = opened.enter_context(other_machine())
        url = opened.enter_context(postgres(tcp=f"{NETWORK}.1")).new_database()
        away = opened.enter_context(
            Server(folder, url, ["ip", "netns", "exec", NAMESPACE], host=f"{NETWORK}.2")
        )
        here = opened.enter_context(Server(folder, url))
        run = away.start("cut")
        ended = away.follow(run, lambda number: number >= 24)
        cut()
        began = time.monotonic()
        while here.ask("GET", f"/runs/{run}").json()["resumptions"] == 0 and time.monotonic() - began < 45:
            time.sleep(0.1)
        taken = time.monotonic() - began
        outcome.check(here, run, ended)
    name = "cut off"
    return [Figure(f"{name}: until another machine goes on", taken, 20, "s"), *outcome.figures(name)]


def figures(points: int) -> Iterator[Figure]:
    """Every disturbance, on SQLite and on PostgreSQL."""
    from postgres import INSTALLED, Postgres

    with ExitStack() as opened:
        folders = (Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in iter(int, 1))
        server = opened.enter_context(Postgres()) if INSTALLED else None
        databases: list[Any] = [("SQLite", lambda: None), ("PostgreSQL", server and server.new_database)]
        for name, make in databases:
            if make is None:
                continue
            print(f"{name}:")
            yield from kills(next(folders), make(), points)
            yield from starts(next(folders), make())
            yield from stands_still(next(folders), make())
        if server is not None:
            yield from restarts(next(folders), server)
            if sys.platform == "linux" and os.geteuid() == 0:
                yield from cut_off(next(folders), Postgres)
            else:
                print("cut off: not tried, which needs Linux and root")


def main(arguments: Sequence[str]) -> int:
    """Disturb and print, or serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--points", type=int, default=12, help="points of a run at which its server is killed"
    )
    parser.add_argument("--serve", nargs="+", metavar="FOLDER HOST [URL]", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        folder, host, *url = given.serve
        settings = ServerSettings(checkpoints=url[0] if url else None, runs_per_minute=10_000)
        run_server(lambda: make_agent(Path(folder)), host=host, port=0, settings=settings, insecure=True)
        return 0
    met = True
    for figure in figures(given.points):
        print(figure, flush=True)
        met = met and figure.met
    return 0 if met else 1
