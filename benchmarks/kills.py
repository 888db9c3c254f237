"""What survives: servers that are killed, stopped or cut off while they work on a run of eight tasks.

    python benchmarks kills --points 12

Each run must end as "done" by itself, with its events numbered without a gap, and no task that had ended may
be done twice. The cut needs Linux, root and `ip`; PostgreSQL must be installed.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import httpx
from httpx_sse import ServerSentEvent, connect_sse
from postgres import INSTALLED, Postgres
from scheduling import Figure, print_figures
from served_runs import served_runs
from typer import Option
from waiting import wait_until

from jarvis_agent.interfaces.server.runs import BEAT_S

TASK_S = 0.15
NETWORK, NAMESPACE = "10.77.77", "jarvis-cut"


class Server(NamedTuple):
    """A server in its own process, and its client."""

    folder: Path
    client: httpx.Client
    process: subprocess.Popen[str]

    def ask(self, thread: str) -> httpx.Response:
        """The response to a request for a new run."""
        return self.client.post("/runs", json={"input": "work", "thread": thread})

    def events(self, run: str) -> Iterator[ServerSentEvent]:
        """The events of a run, as they come."""
        with connect_sse(self.client, "GET", f"/runs/{run}/events") as source:
            yield from source.iter_sse()

    def start(self, thread: str, until: int) -> tuple[str, set[int]]:
        """The id of a new run, and its tasks that have ended when so many events have come, or at its end."""
        run, ended = self.ask(thread).json()["id"], set()
        for number, event in enumerate(map(ServerSentEvent.json, self.events(run)), 1):
            if event.get("kind") == "finished":
                ended.add(event["task"]["id"])
            if number >= until:
                break
        return run, ended


@contextmanager
def running(folder: Path, url: str | None, **options: Any) -> Iterator[Server]:
    """A server, with its runs in this database or in SQLite, which is killed at the end."""
    (folder / "gate").touch()
    with served_runs(folder, url=url, seconds=TASK_S, beat=BEAT_S, **options) as (client, process):
        try:
            yield Server(folder, client, process)
        finally:
            process.kill()


class Outcome:
    """What became of runs."""

    def __init__(self) -> None:
        self.counts, self.seconds = Counter[str](), list[float]()

    def check(self, server: Server, run: str, ended: set[int]) -> None:
        """Wait for the end of a run. `ended` are the tasks that had ended when its server was disturbed."""
        began = time.monotonic()
        *events, last = server.events(run)
        self.seconds.append(time.monotonic() - began)
        info = last.json()
        has_gap = [event.id for event in events] != [str(n) for n in range(1, len(events) + 1)]
        self.counts.update(runs=1, lost=info["status"] != "done", gaps=has_gap)
        if info["status"] == "done":
            word = info["run"]["plan"]["tasks"][0]["args"]["text"].split()[0]
            lines = map(str.split, (server.folder / "log").read_text().splitlines())
            done = Counter(int(task) for task, _, of in lines if of == word)
            self.counts.update(ended=len(ended), repeated=sum(done[task] > 1 for task in ended))

    def figures(self, name: str) -> list[Figure]:
        """What is expected of them."""
        counts = self.counts
        return [
            Figure(f"{name}: lost runs of {counts['runs']}", counts["lost"], 0),
            Figure(f"{name}: runs with a gap in their events", counts["gaps"], 0),
            Figure(f"{name}: ended tasks that were done again, of {counts['ended']}", counts["repeated"], 0),
            Figure(f"{name}: until the run is done, at most", max(self.seconds), None, "s"),
        ]


def kills(folder: Path, url: str | None, points: int) -> list[Figure]:
    """A server that is killed at several points of a run, and started again."""
    outcome = Outcome()
    for point in range(points):
        with running(folder, url) as server:
            run, ended = server.start(f"kill {point}", until=1 + point * 40 // points)
        with running(folder, url) as server:
            outcome.check(server, run, ended)
    return outcome.figures("killed")


def starts(folder: Path, url: str | None, tries: int = 15) -> list[Figure]:
    """Two servers that are asked at once for a run on one thread."""
    wrong = 0
    with running(folder, url) as one, running(folder, url) as other, ThreadPoolExecutor(2) as both:
        for number in range(tries):
            asked = [both.submit(server.ask, f"start {number}") for server in (one, other)]
            wrong += sorted(answer.result().status_code for answer in asked) != [202, 409]
    return [Figure(f"two starts at once: without exactly one winner, of {tries}", wrong, 0)]


def stands_still(folder: Path, url: str | None) -> list[Figure]:
    """A server that stands still for 20 s."""
    outcome, taken = Outcome(), 0
    with running(folder, url) as one, running(folder, url) as other:
        run, ended = one.start("still", until=24)
        one.process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            time.sleep(1)
            taken += other.client.get(f"/runs/{run}").json()["status"] != "running"
            taken += other.client.post(f"/runs/{run}/resume").status_code != 409
        one.process.send_signal(signal.SIGCONT)
        outcome.check(other, run, ended)
    name = "stood still for 20 s"
    return [Figure(f"{name}: looks at which its run was free, of 40", taken, 0), *outcome.figures(name)]


def restarts(folder: Path, postgres: Postgres, points: int = 4) -> list[Figure]:
    """PostgreSQL, restarted at several points of a run."""
    outcome = Outcome()
    with running(folder, postgres.new_database()) as server:
        for point in range(points):
            run, ended = server.start(f"restart {point}", until=2 + 8 * point)
            postgres.stop()
            postgres.start()
            for _ in range(60):
                with suppress(httpx.HTTPError):
                    if server.client.get(f"/runs/{run}").status_code == 200:
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


def cut_off(folder: Path) -> list[Figure]:
    """A server on another machine that loses its network. The output directory is a shared one."""
    outcome, inside = Outcome(), ("ip", "netns", "exec", NAMESPACE)
    with other_machine() as cut, Postgres(tcp=f"{NETWORK}.1") as postgres:
        url = postgres.new_database()
        with running(folder, url, host=f"{NETWORK}.2", prefix=inside) as away, running(folder, url) as here:
            run, ended = away.start("cut", until=24)
            cut()
            began = time.monotonic()
            wait_until(lambda: here.client.get(f"/runs/{run}").json()["resumptions"])
            taken = time.monotonic() - began
            outcome.check(here, run, ended)
    name = "cut off"
    return [Figure(f"{name}: until another machine goes on", taken, 20, "s"), *outcome.figures(name)]


def figures(points: int) -> Iterator[Figure]:
    """Every disturbance, on SQLite and on PostgreSQL."""
    with Postgres() if INSTALLED else nullcontext() as postgres:
        for name in ("SQLite", "PostgreSQL") if postgres else ("SQLite",):
            print(f"{name}:")
            for disturbed in (partial(kills, points=points), starts, stands_still):
                url = postgres.new_database() if postgres and name == "PostgreSQL" else None
                with TemporaryDirectory() as folder:
                    yield from disturbed(Path(folder), url)
        if postgres:
            with TemporaryDirectory() as folder:
                yield from restarts(Path(folder), postgres)
    if postgres and sys.platform == "linux" and os.geteuid() == 0:
        with TemporaryDirectory() as folder:
            yield from cut_off(Path(folder))
    else:
        print("cut off: not tried, which needs PostgreSQL, Linux and root")


def main(points: Annotated[int, Option(help="points of a run at which its server is killed")] = 12) -> None:
    """Disturb and print."""
    print_figures(figures(points))
