"""Downloads: the URLs that are fetched, and those that are refused."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media import download
from jarvis_agent.media.download import fetch

REDIRECTS = {
    "/loop": "/loop",
    "/away": "file:///etc/passwd",
    "/inside": "http://169.254.169.254/latest/meta-data",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if target := REDIRECTS.get(self.path):
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()
        elif self.path in ("/300", "/304"):
            self.send_response(int(self.path[1:]))
            self.end_headers()
        else:
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


# fmt: off
PRIVATE = [
    "64:ff9b::7f00:1", "64:ff9b:1::808:808", "2002:7f00:1::", "2001:0:7f00:1::f7f7:f7f7",
    "::ffff:127.0.0.1", "::127.0.0.1", "::", "::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1",
    "ff02::1", "ff0e::1", "::ffff:0:127.0.0.1", "5f00::1", "0.0.0.0", "10.0.0.1", "127.8.8.8",
    "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1", "255.255.255.255", "224.0.0.1",
    "192.0.0.192", "168.63.129.16",
]
# fmt: on
"""Private, shared and multicast addresses, and IPv6 addresses that contain one."""


async def test_private_addresses_are_refused(tmp_path: Path) -> None:
    for host in PRIVATE:
        url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
        with pytest.raises(ForbiddenError, match=r"private address.*JARVIS_ALLOW_PRIVATE_URLS"):
            await fetch(url, tmp_path / "x", Settings())


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"])
async def test_a_public_address_is_asked_for_by_itself(host):
    url = httpx.URL(f"http://[{host}]/" if ":" in host else f"http://{host}/")
    assert (await download._request(url, Settings(), None))["url"].host == host


@pytest.mark.parametrize("url", ["http://[abc/x.png", "http://a..b/x.png"])
@pytest.mark.parametrize("settings", [OPEN, Settings()])
async def test_an_address_that_is_none_is_an_input_error(url, settings, tmp_path, monkeypatch):
    # The guard of the tests would refuse the name before the system encodes it, which is what fails.
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: _idna(host))
    with pytest.raises(InputError, match="cannot be fetched"):
        await fetch(url, tmp_path / "x", settings)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("/300", InputError, "answered 300"),
        ("/304", InputError, "answered 304"),
        ("/gone", InputError, "answered 404"),
        ("/loop", InputError, "redirects more than"),
        ("/away", ForbiddenError, "only http"),
    ],
)
async def test_a_url_without_a_file_is_an_error(
    path: str, error: type[Exception], message: str, server: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        await fetch(f"{server}{path}", tmp_path / "x", OPEN)
    assert not (tmp_path / "x").exists()


async def test_a_file_over_the_limit_leaves_nothing_behind(server, tmp_path):
    small = Settings(allow_private_urls=True, max_file_bytes=100)
    with pytest.raises(InputError, match="larger than 100 bytes"):
        await fetch(f"{server}/ok", tmp_path / "x", small)
    assert not (tmp_path / "x").exists()


async def test_the_address_that_was_checked_is_the_one_that_is_asked(server, tmp_path, monkeypatch):
    """A name that leads elsewhere when it is looked up again leads nowhere new."""
    port = server.rpartition(":")[2]
    looked_up: list[str] = []

    async def addresses(url):
        looked_up.append(url.host)
        return ["127.0.0.1"]

    class Public(ipaddress.IPv4Address):
        is_global = True

    monkeypatch.setattr(download, "_addresses", addresses)
    monkeypatch.setattr(download.ipaddress, "ip_address", Public)
    path = await fetch(f"http://rebinding.example:{port}/ok", tmp_path / "x", Settings())
    assert path.read_bytes() == b"x" * 1000
    assert looked_up == ["rebinding.example"]


def _resolving(monkeypatch: pytest.MonkeyPatch, lookup: Callable[[str], list[str]]) -> list[str]:
    """Resolve names with `lookup`; return the list of the names that are looked up."""
    names: list[str] = []

    def getaddrinfo(name: Any, *_: Any, **__: Any) -> Any:
        names.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in lookup(name)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


async def test_other_spellings_of_a_private_address_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ["2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1", "0", "localhost"]
    inet = lambda name: "127.0.0.1" if name == "localhost" else socket.inet_ntoa(socket.inet_aton(name))  # noqa: E731
    names = _resolving(monkeypatch, lambda name: [inet(name)])
    for host in hosts:
        with pytest.raises(ForbiddenError, match="private address"):
            await fetch(f"http://{host}/", tmp_path / "x", Settings())
    assert names == hosts
    with pytest.raises(InputError, match="Invalid IPv4 address"):
        await fetch("http://0177.0.0.1/", tmp_path / "x", Settings())


async def test_a_name_is_looked_up_in_the_form_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own encoding (IDNA 2003) would look up fass.example, another host."""
    names = _resolving(monkeypatch, lambda name: ["8.8.8.8"])
    request = await download._request(httpx.URL("https://faß.example/"), Settings(), None)
    assert names == [request["headers"]["Host"]] == [request["extensions"]["sni_hostname"]]
    assert names == ["xn--fa-hia.example"]


async def test_one_private_address_among_public_ones_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _resolving(monkeypatch, lambda name: ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(ForbiddenError, match=r"private address 10\.0\.0\.1"):
        await fetch("http://two.example/", tmp_path / "x", Settings())


async def test_a_public_address_that_redirects_to_a_private_one_is_refused(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = download._is_public
    monkeypatch.setattr(download, "_is_public", lambda ip: str(ip) == "127.0.0.1" or real(ip))
    with pytest.raises(ForbiddenError, match=r"leads to the private address 169\.254\.169\.254"):
        await fetch(f"{server}/inside", tmp_path / "x", Settings())
    assert not (tmp_path / "x").exists()


async def test_a_login_that_looks_like_a_host_is_none(tmp_path: Path) -> None:
    """What stands before an @ is no host: the address is what comes after it."""
    with pytest.raises(ForbiddenError, match=r"http://10\.0\.0\.1/ leads to the private address"):
        await fetch("http://example.com:80@10.0.0.1/", tmp_path / "x", Settings())


def _answering(monkeypatch: pytest.MonkeyPatch, content: bytes, **headers: str) -> list[httpx.Request]:
    """Let every URL answer so, with headers such as `content_encoding`; the list gets what is asked."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Response(200, headers=named, stream=httpx.ByteStream(content))

    client = httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=httpx.MockTransport(answer)))
    return asked


async def test_nothing_packed_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _answering(monkeypatch, b"x")
    await fetch("http://some.example/a", tmp_path / "x", OPEN)
    assert [request.headers["accept-encoding"] for request in asked] == ["identity"]


@pytest.mark.parametrize("size", [0, 1000, 3_000_000])
async def test_what_a_store_keeps_packed_is_unpacked(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * (size // 256)
    _answering(monkeypatch, gzip.compress(content), content_encoding="gzip")
    path = await fetch("http://store.example/a", tmp_path / "x", OPEN)
    assert path.read_bytes() == content


async def test_a_small_answer_that_unpacks_to_a_large_one_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"\0" * 100_000_000)
    _answering(monkeypatch, packed, content_encoding="gzip")
    small = Settings(allow_private_urls=True, max_file_bytes=100_000)
    assert len(packed) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="larger than 100,000 bytes"):
            await fetch("http://bomb.example/a.svg", tmp_path / "x", small)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate", "br", "zstd"])
async def test_what_is_packed_otherwise_is_refused_unread(
    coding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second layer of one such answer of three kilobytes unpacks to gigabytes in one step.
    _answering(monkeypatch, gzip.compress(gzip.compress(b"\0" * 1_000_000)), content_encoding=coding)
    with pytest.raises(InputError, match=f"is compressed with '{coding}'; only gzip is supported"):
        await fetch("http://bomb.example/a.svg", tmp_path / "x", OPEN)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (gzip.compress(b"x" * 1000)[:-9], "ended within"),
        (gzip.compress(b"x") + gzip.compress(b"y"), "data after the end"),
        (b"<html>no gzip</html>", "incorrect header check"),
        (b"", "ended within"),
    ],
    ids=["half", "two", "none", "nothing"],
)
async def test_an_answer_that_is_not_packed_as_it_says_is_refused(
    content: bytes, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answering(monkeypatch, content, content_encoding="gzip")
    with pytest.raises(InputError, match=complaint):
        await fetch("http://some.example/a", tmp_path / "x", OPEN)
    assert not (tmp_path / "x").exists()
