"""Downloads: URLs that are fetched, and URLs that are refused."""

import asyncio
import gzip
import ipaddress
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from jarvis_agent import __version__
from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media import download
from jarvis_agent.media.download import fetch
from jarvis_agent.testing.hub import Reply, ReplyServer

REPLIES = {
    "/ok": Reply(body=b"x" * 1000),
    "/large": Reply(body=b"x" * 655_000),  # arrives in pieces of 64 kB
    "/300": Reply(300),
    "/304": Reply(304),
    "/0": Reply(body=b"here"),
    **{f"/{n}": Reply(302, headers={"Location": f"/{n - 1}"}) for n in range(1, 7)},
    "/loop": Reply(302, headers={"Location": "/loop"}),
    "/away": Reply(302, headers={"Location": "file:///etc/passwd"}),
    "/inside": Reply(302, headers={"Location": "http://169.254.169.254/latest/meta-data"}),
}
OPEN = Settings(allow_private_urls=True)

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


@pytest.fixture
def server() -> Iterator[str]:
    with ReplyServer(lambda request: REPLIES.get(request.path, Reply(404))) as server:
        yield server.url


def _url(host: str) -> str:
    return f"http://[{host}]/" if ":" in host else f"http://{host}/"


def _resolving(monkeypatch: pytest.MonkeyPatch, lookup: Callable[[str], list[str]]) -> list[str]:
    """Resolve names with `lookup`; return the list of the names that are looked up."""
    names: list[str] = []

    def getaddrinfo(name: Any, *_: Any, **__: Any) -> Any:
        name = name if isinstance(name, str) else name.decode()
        names.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in lookup(name)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


async def test_a_url_becomes_a_file_or_an_error_that_leaves_none(server: str, tmp_path: Path) -> None:
    target = tmp_path / "x"
    small = OPEN.model_copy(update={"max_file_bytes": 100_000})
    cases: list[tuple[str, Settings, type[Exception], str]] = [
        ("/300", OPEN, InputError, "answered 300"),
        ("/304", OPEN, InputError, "answered 304"),
        ("/gone", OPEN, InputError, "answered 404"),
        ("/loop", OPEN, InputError, "redirects more than"),
        ("/6", OPEN, InputError, "redirects more than 5 times"),
        ("/away", OPEN, ForbiddenError, "only http"),
        ("/large", small, InputError, "larger than 100,000 bytes"),
    ]
    for path, settings, error, message in cases:
        with pytest.raises(error, match=message):
            await fetch(f"{server}{path}", target, settings)
        assert not target.exists(), path
    assert (await fetch(f"{server}/ok", target, OPEN)).read_bytes() == b"x" * 1000
    assert (await fetch(f"{server}/5", target, OPEN)).read_bytes() == b"here"


async def test_private_addresses_are_refused_and_public_ones_are_used(tmp_path: Path) -> None:
    for host in PRIVATE:
        with pytest.raises(ForbiddenError, match=r"private address.*JARVIS_ALLOW_PRIVATE_URLS"):
            await fetch(_url(host), tmp_path / "x", Settings())
    for host in ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"):
        assert (await download._request(httpx.URL(_url(host)), Settings(), None))["url"].host == host
    # The part before an @ is a login, not the host.
    with pytest.raises(ForbiddenError, match=r"http://10\.0\.0\.1/ leads to the private address"):
        await fetch("http://example.com:80@10.0.0.1/", tmp_path / "x", Settings())


async def test_names_and_spellings_of_a_private_address_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ["2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1", "0", "localhost"]

    def lookup(name: str) -> list[str]:
        if name == "two.example":
            return ["8.8.8.8", "10.0.0.1"]
        return ["127.0.0.1" if name == "localhost" else socket.inet_ntoa(socket.inet_aton(name))]

    names = _resolving(monkeypatch, lookup)
    for host in [*hosts, "two.example"]:
        with pytest.raises(ForbiddenError, match="private address"):
            await fetch(f"http://{host}/", tmp_path / "x", Settings())
    assert names == [*hosts, "two.example"]
    with pytest.raises(InputError, match="Invalid IPv4 address"):
        await fetch("http://0177.0.0.1/", tmp_path / "x", Settings())


async def test_an_invalid_address_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _resolving(monkeypatch, lambda name: [name.encode("idna").decode()])  # as the system does; this fails
    for url in ("http://[abc/x.png", "http://a..b/x.png"):
        for settings in (OPEN, Settings()):
            with pytest.raises(InputError, match="cannot be fetched"):
                await fetch(url, tmp_path / "x", settings)


async def test_a_name_is_looked_up_in_the_form_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own encoding (IDNA 2003) would look up fass.example, another host."""
    names = _resolving(monkeypatch, lambda name: ["8.8.8.8"])
    request = await download._request(httpx.URL("https://faß.example/"), Settings(), None)
    assert names == [request["headers"]["Host"]] == [request["extensions"]["sni_hostname"]]
    assert names == ["xn--fa-hia.example"]


async def test_the_connection_uses_the_checked_address(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name is looked up once."""
    looked_up: list[str] = []

    async def addresses(url: httpx.URL) -> list[str]:
        looked_up.append(url.host)
        return ["127.0.0.1"]

    class Public(ipaddress.IPv4Address):
        is_global = True

    monkeypatch.setattr(download, "_addresses", addresses)
    monkeypatch.setattr(ipaddress, "ip_address", Public)
    url = f"http://rebinding.example:{server.rpartition(':')[2]}/ok"
    assert (await fetch(url, tmp_path / "x", Settings())).read_bytes() == b"x" * 1000
    assert looked_up == ["rebinding.example"]


async def test_a_public_address_that_redirects_to_a_private_one_is_refused(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = download._is_public
    monkeypatch.setattr(download, "_is_public", lambda ip: str(ip) == "127.0.0.1" or real(ip))
    with pytest.raises(ForbiddenError, match=r"leads to the private address 169\.254\.169\.254"):
        await fetch(f"{server}/inside", tmp_path / "x", Settings())
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_the_certificate_of_a_checked_address_must_have_the_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    name = ["-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *both, *name]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    _resolving(monkeypatch, lambda name: ["127.0.0.1"])
    monkeypatch.setattr(download, "_is_public", lambda address: True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    hosts: list[str] = []
    with ReplyServer(lambda request: hosts.append(request.headers["host"]) or Reply()) as shop:
        shop.socket = context.wrap_socket(shop.socket, server_side=True)
        for host in ("other.example", "shop.example"):
            refused = pytest.raises(InputError, match="certificate") if host[0] == "o" else nullcontext()
            with refused:
                await fetch(f"https://{host}:{shop.server_port}/", tmp_path / "x", Settings())
    assert hosts == [f"shop.example:{shop.server_port}"]


async def test_a_proxy_gets_the_host_name_and_never_a_private_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    private = {"inside.example": "10.0.0.1"}
    _resolving(monkeypatch, lambda name: [private.get(name, "8.8.8.8")])
    hosts: list[str] = []
    with ReplyServer(lambda request: hosts.append(request.headers["host"]) or Reply()) as proxy:
        for variable in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
            with monkeypatch.context() as patched:
                patched.setenv(variable, proxy.url)
                await fetch("http://shop.example/a.txt", tmp_path / "x", Settings())
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(ForbiddenError, match="private address"):
            await fetch("http://inside.example/a.txt", tmp_path / "x", Settings())
    assert hosts == ["shop.example"] * 3
    # The proxy is closed now, and not used for names that NO_PROXY excludes.
    with pytest.raises(InputError, match="cannot be fetched"):
        await fetch("http://shop.example/a.txt", tmp_path / "x", Settings())
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,.example")
    assert download._proxy_of(httpx.URL("http://shop.example/a.txt")) is None
    monkeypatch.setenv("HTTPS_PROXY", "secure.example:3128")
    assert download._proxy_of(httpx.URL("https://a.org/")) == "http://secure.example:3128"


Answering = Callable[..., list[httpx.Request]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Sets the answer to every URL; returns the list of requests."""
    client = httpx.AsyncClient

    def answering(content: bytes, **headers: str) -> list[httpx.Request]:
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(200, headers=headers, stream=httpx.ByteStream(content))

        monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=httpx.MockTransport(answer)))
        return asked

    return answering


async def test_compressed_bodies_are_unpacked_or_refused(tmp_path: Path, answering: Answering) -> None:
    target = tmp_path / "x"
    asked = answering(b"x")
    await fetch("http://some.example/a", target, OPEN)
    assert [request.headers["accept-encoding"] for request in asked] == ["identity"]
    assert asked[0].headers["user-agent"].startswith(f"langchain-hugginggpt/{__version__} (http")
    for size in (0, 1000, 3_000_000):
        content = bytes(range(256)) * (size // 256)
        answering(gzip.compress(content), **{"content-encoding": "gzip"})
        assert (await fetch("http://store.example/a", target, OPEN)).read_bytes() == content
    twice = gzip.compress(gzip.compress(b"\0" * 1_000_000))
    refused = [
        ("gzip, gzip", twice, "is compressed with 'gzip, gzip'; only gzip is supported"),
        ("zstd", twice, "is compressed with 'zstd'"),
        ("gzip", b"<html>no gzip</html>", "incorrect header check"),
    ]
    for coding, content, message in refused:
        answering(content, **{"content-encoding": coding})
        with pytest.raises(InputError, match=message):
            await fetch("http://some.example/a", tmp_path / "y", OPEN)
        assert not (tmp_path / "y").exists()


async def test_a_body_that_unpacks_to_a_large_one_is_cut_off(tmp_path: Path, answering: Answering) -> None:
    answering(gzip.compress(b"\0" * 10_000_000), **{"content-encoding": "gzip"})
    small = OPEN.model_copy(update={"max_file_bytes": 100_000})
    with pytest.raises(InputError, match="larger than 100,000 bytes"):
        await fetch("http://bomb.example/a", tmp_path / "x", small)
    assert not (tmp_path / "x").exists()
