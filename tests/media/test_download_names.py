"""Host names in downloads: TLS, the Host header and proxies get the name, not the checked address."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media import download
from jarvis_agent.media.download import fetch

NAME = "shop.example"
"""The name in the server's certificate."""

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for NAME and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    subprocess.run(["openssl", *options, *files, *subject], cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


class Server(ThreadingHTTPServer):
    """An HTTPS server that records the names of its clients. A proxy answers in its tunnels itself."""

    def __init__(self, context: ssl.SSLContext, *, as_proxy: bool) -> None:
        self.context, self.hosts, self.tunnels = context, list[str | None](), list[str]()
        super().__init__(("127.0.0.1", 0), _Handler)
        if not as_proxy:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_CONNECT(self) -> None:
        self.server.tunnels.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.request = self.server.context.wrap_socket(self.connection, server_side=True)
        self.setup()
        self.handle_one_request()

    def do_GET(self) -> None:
        self.server.hosts.append(self.headers["Host"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the shop")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(certificate: Path, *, as_proxy: bool = False) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Server(context, as_proxy=as_proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


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


async def test_requests_to_a_checked_address_use_its_host_name(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(certificate) as shop:
        url = f"https://{NAME}:{shop.server_port}/a.txt"
        with pytest.raises(InputError, match="certificate"):
            await fetch(url.replace(NAME, "other.example"), tmp_path / "x", Settings())
        assert shop.hosts == []
        assert (await fetch(url, tmp_path / "x", Settings())).read_bytes() == b"from the shop"
        assert shop.hosts == [f"{NAME}:{shop.server_port}"]
        # A proxy that does not answer is used, unless NO_PROXY excludes the name.
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        with pytest.raises(InputError, match="cannot be fetched"):
            await fetch(url, tmp_path / "x", Settings())
        monkeypatch.setenv("NO_PROXY", "elsewhere.example,.example")
        assert (await fetch(url, tmp_path / "x", Settings())).read_bytes() == b"from the shop"


async def test_a_proxy_gets_the_host_name_and_never_a_private_address(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://{NAME}/a.txt"
    with serving(certificate, as_proxy=True) as proxy:
        for variable in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy"):
            with monkeypatch.context() as patched:
                patched.setenv(variable, f"http://127.0.0.1:{proxy.server_port}")
                assert (await fetch(url, tmp_path / "x", Settings())).read_bytes() == b"from the shop"
        assert (proxy.tunnels, proxy.hosts) == ([f"{NAME}:443"] * 3, [NAME] * 3)
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.setattr(download, "_is_public", lambda address: False)
        with pytest.raises(ForbiddenError, match="private address"):
            await fetch(url, tmp_path / "x", Settings())
        assert len(proxy.tunnels) == 3
