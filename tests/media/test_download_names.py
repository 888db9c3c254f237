"""Names in downloads: TLS, the Host header and proxies get the host name of a checked address."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media import download
from jarvis_agent.media.download import fetch

NAME = "shop.example"
"""The name that the server's certificate is for."""

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for NAME and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


@dataclass
class Server:
    """A running server: its port, and the names that its clients used."""

    port: int = 0
    hosts: list[str | None] = field(default_factory=list)
    tunnels: list[str] = field(default_factory=list)


def _serving(certificate: Path, *, as_proxy: bool) -> Iterator[Server]:
    """An HTTPS server; with `as_proxy`, a proxy that answers requests in its tunnels itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            told.tunnels.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.request = context.wrap_socket(self.connection, server_side=True)
            self.setup()
            self.handle_one_request()

        def do_GET(self) -> None:
            told.hosts.append(self.headers["Host"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the shop")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that does not trust the certificate hangs up."""

    with Quiet(("127.0.0.1", 0), Handler) as httpd:
        if not as_proxy:
            httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
        told.port = httpd.server_port
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield told
        httpd.shutdown()


@pytest.fixture
def shop(certificate: Path) -> Iterator[Server]:
    yield from _serving(certificate, as_proxy=False)


@pytest.fixture
def proxy(certificate: Path) -> Iterator[Server]:
    yield from _serving(certificate, as_proxy=True)


@pytest.fixture(autouse=True)
def _world(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name resolves to this machine, which counts as public; the certificate is trusted."""

    async def addresses(url: Any) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(download, "_addresses", addresses)
    monkeypatch.setattr(download, "_is_public", lambda address: True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def test_a_pinned_address_is_asked_under_the_name_of_the_host(shop: Server, tmp_path: Path) -> None:
    path = await fetch(f"https://{NAME}:{shop.port}/a.txt", tmp_path / "x", Settings())
    assert path.read_bytes() == b"from the shop"
    assert shop.hosts == [f"{NAME}:{shop.port}"]


async def test_a_certificate_for_another_name_is_refused(shop: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="certificate"):
        await fetch(f"https://other.example:{shop.port}/a.txt", tmp_path / "x", Settings())
    assert shop.hosts == []


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY", "https_proxy"])
async def test_a_proxy_is_asked_for_the_name(
    variable: str, proxy: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
    path = await fetch(f"https://{NAME}/a.txt", tmp_path / "x", Settings())
    assert path.read_bytes() == b"from the shop"
    assert (proxy.tunnels, proxy.hosts) == ([f"{NAME}:443"], [NAME])


async def test_no_proxy_is_asked_for_a_name_that_wants_none(
    shop: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{_free_port()}")
    url = f"https://{NAME}:{shop.port}/a.txt"
    with pytest.raises(InputError, match="cannot be fetched"):
        await fetch(url, tmp_path / "x", Settings())
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,.example")
    path = await fetch(url, tmp_path / "x", Settings())
    assert path.read_bytes() == b"from the shop"


async def test_a_proxy_is_not_asked_for_a_private_address(
    proxy: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setattr(download, "_is_public", lambda address: False)
    with pytest.raises(ForbiddenError, match="private address"):
        await fetch(f"https://{NAME}/a.txt", tmp_path / "x", Settings())
    assert proxy.tunnels == []
