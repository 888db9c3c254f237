"""URLs: what is fetched, and what is refused."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from jarvis_agent import fetch as fetch_module
from jarvis_agent.errors import ForbiddenError, InputError
from jarvis_agent.fetch import fetch
from jarvis_agent.settings import Settings


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/loop":
            self.send_response(302)
            self.send_header("Location", "/loop")
            self.end_headers()
            return
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
            return
        if self.path in ("/300", "/304"):
            self.send_response(int(self.path[1:]))
            self.end_headers()
            return
        self.send_response(200 if self.path == "/ok" else 404)
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def _idna(host: str | bytes) -> Any:
    return (host if isinstance(host, str) else host.decode()).encode("idna")


OPEN = Settings(allow_private_urls=True)


async def test_a_url_becomes_a_file(server, tmp_path):
    path = await fetch(f"{server}/ok", tmp_path / "x", OPEN)
    assert path.read_bytes() == b"x" * 1000


async def test_a_private_address_is_refused_unless_allowed(server, tmp_path):
    with pytest.raises(ForbiddenError, match="JARVIS_ALLOW_PRIVATE_URLS"):
        await fetch(f"{server}/ok", tmp_path / "x", Settings())


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://[::1]/", "http://10.0.0.1/"])
async def test_every_kind_of_private_address_is_refused(url, tmp_path):
    with pytest.raises(ForbiddenError):
        await fetch(url, tmp_path / "x", Settings())


@pytest.mark.parametrize(
    "host",
    [
        "64:ff9b::7f00:1",
        "64:ff9b:1::808:808",
        "2002:7f00:1::",
        "2001:0:7f00:1::f7f7:f7f7",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "224.0.0.1",
    ],
)
async def test_an_address_that_leads_to_a_private_or_shared_one_is_refused(host, tmp_path):
    url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
    with pytest.raises(ForbiddenError, match="private address"):
        await fetch(url, tmp_path / "x", Settings())


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"])
async def test_a_public_address_is_asked_for_by_itself(host):
    url = httpx.URL(f"http://[{host}]/" if ":" in host else f"http://{host}/")
    assert (await fetch_module._pin(url))["url"].host == host


@pytest.mark.parametrize("url", ["http://[abc/x.png", "http://a..b/x.png"])
@pytest.mark.parametrize("settings", [OPEN, Settings()])
async def test_an_address_that_is_none_is_an_input_error(url, settings, tmp_path, monkeypatch):
    # The guard of the tests would refuse the name before the system encodes it, which is what fails.
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: _idna(host))
    with pytest.raises(InputError, match="can not be fetched"):
        await fetch(url, tmp_path / "x", settings)


@pytest.mark.parametrize("status", [300, 304])
async def test_a_redirect_that_leads_nowhere_is_named(server, tmp_path, status):
    with pytest.raises(InputError, match=f"answered {status}"):
        await fetch(f"{server}/{status}", tmp_path / "x", OPEN)


async def test_a_redirect_to_another_scheme_is_refused(server, tmp_path):
    with pytest.raises(ForbiddenError, match="only http"):
        await fetch(f"{server}/away", tmp_path / "x", OPEN)


async def test_endless_redirects_end(server, tmp_path):
    with pytest.raises(InputError, match="redirects more than"):
        await fetch(f"{server}/loop", tmp_path / "x", OPEN)


async def test_a_file_over_the_limit_leaves_nothing_behind(server, tmp_path):
    small = Settings(allow_private_urls=True, max_file_bytes=100)
    with pytest.raises(InputError, match="larger than 100 bytes"):
        await fetch(f"{server}/ok", tmp_path / "x", small)
    assert not (tmp_path / "x").exists()


async def test_an_error_status_is_named(server, tmp_path):
    with pytest.raises(InputError, match="answered 404"):
        await fetch(f"{server}/gone", tmp_path / "x", OPEN)


async def test_the_address_that_was_checked_is_the_one_that_is_asked(server, tmp_path, monkeypatch):
    """A name that leads elsewhere when it is looked up again leads nowhere new."""
    port = server.rpartition(":")[2]
    looked_up: list[str] = []

    async def addresses(url):
        looked_up.append(url.host)
        return ["127.0.0.1"]

    class Public(ipaddress.IPv4Address):
        is_global = True

    monkeypatch.setattr(fetch_module, "_addresses", addresses)
    monkeypatch.setattr(fetch_module.ipaddress, "ip_address", Public)
    path = await fetch(f"http://rebinding.example:{port}/ok", tmp_path / "x", Settings())
    assert path.read_bytes() == b"x" * 1000
    assert looked_up == ["rebinding.example"]
