"""A PostgreSQL server for the tests, in a temporary directory.

with Postgres() as server:
    url = server.new_database()
    server.stop(), server.start()
"""

import getpass
import itertools
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

INSTALLED = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=shutil.which("initdb"))
"""Debian keeps the programs of the server outside of PATH."""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Postgres:
    """A running server, reached by a Unix socket, or at the address `tcp`. It refuses to run as root."""

    def __init__(self, *, tcp: str = "") -> None:
        if INSTALLED is None:
            raise FileNotFoundError("PostgreSQL is not installed; on Debian: apt install postgresql")
        names = {user.pw_name for user in pwd.getpwall()}
        is_root = getpass.getuser() == "root"
        self._user = next(name for name in ("postgres", "nobody") if name in names) if is_root else None
        self._folder = Path(tempfile.mkdtemp(prefix="jarvis-postgres-"))
        self._numbers = itertools.count()
        self._tcp, self._port = tcp, _free_port() if tcp else 5432
        if self._user:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "--auth=trust", "--username=jarvis", "--no-sync", "--encoding=UTF8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start it, and wait until it can be used."""
        if self._tcp:
            with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self._tcp}/24 trust\n")
        options = f"-k {self._folder} -p {self._port} -c listen_addresses={self._tcp} -c fsync=off"
        self._run("pg_ctl", "start", "--wait", f"--log={self._folder}/log", f"--options={options}")

    def stop(self) -> None:
        """End it at once, with all its connections."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test{next(self._numbers)}"
        place = [f"--host={self._folder}", f"--port={self._port}"]
        self._run("createdb", *place, "--username=jarvis", name, data=False)
        return f"postgresql://jarvis@/{name}?host={self._tcp or self._folder}&port={self._port}"

    def _run(self, program: str, *arguments: str, data: bool = True) -> None:
        command = [str(Path(INSTALLED or "").with_name(program)), *arguments]
        command += [f"--pgdata={self._folder / 'data'}"] if data else []
        subprocess.run(
            command,
            check=True,
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
