"""Fetch a URL that the user named: http(s) only, public addresses only, within limits of size and time.

path = await fetch("https://example.org/cat.jpg", folder / "cat.jpg", settings)

Where the environment names a proxy for the URL (HTTPS_PROXY, NO_PROXY), the addresses are checked here too,
but the proxy is asked for the name: it looks the name up itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from jarvis_agent.core.errors import ForbiddenError, InputError, redacted_cause
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.detect import disk_errors

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
_PLAIN, _GZIP = frozenset({"", "identity"}), frozenset({"gzip", "x-gzip"})
_GZIP_BITS = 16 + zlib.MAX_WBITS
_PIECE = 256 * 1024
"""Bytes that are unpacked at once."""
# Where all public hosts of IPv6 are so far, and the network whose addresses end in an IPv4 address.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Within networks that Python takes as public: the first one is for protocols (some clouds keep the secrets of
# a machine there), the second one is Azure's own address, which gives them too.
_OF_MACHINES = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("168.63.129.16/32"))


async def fetch(url: str, target: Path, settings: Settings) -> Path:
    """Download `url` to `target` and return it. Nothing is left behind when it fails.

    Raises:
        ForbiddenError: the URL, or one that it redirects to, is not http(s) or leads to a private address.
        InputError: it can not be fetched, or is larger than `settings.max_file_bytes`.
    """
    import httpx

    try:
        async with asyncio.timeout(settings.url_timeout):
            for _ in range(_MAX_REDIRECTS + 1):
                _refuse_other_schemes(url)
                asked = httpx.URL(url)
                proxy = _proxy_of(asked)
                request = await _request(asked, settings, proxy)
                async with (
                    httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(proxy=proxy)) as client,
                    client.stream("GET", **request) as response,
                ):
                    if response.has_redirect_location:
                        url = str(asked.join(response.headers["location"]))
                        continue
                    response.raise_for_status()
                    await _save(response, url, target, settings.max_file_bytes)
                    return target
        raise InputError(f"{url} redirects more than {_MAX_REDIRECTS} times")
    except TimeoutError as error:
        late = f"{url} did not arrive within {settings.url_timeout:g} s (JARVIS_URL_TIMEOUT)"
        raise InputError(late) from redacted_cause(error)
    except httpx.HTTPStatusError as error:
        told = f"{url} answered {error.response.status_code}; check the address"
        raise InputError(told) from redacted_cause(error)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, zlib.error, ImportError) as error:
        # An ImportError is httpx's for a kind of proxy that needs another package.
        told = f"{url} can not be fetched: {error or type(error).__name__}"
        raise InputError(told) from redacted_cause(error)


async def _save(response: httpx.Response, url: str, target: Path, limit: int) -> None:
    size = 0
    try:
        with disk_errors(url), target.open("wb") as file:
            async with aclosing(_unpacked(response, url)) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if size > limit:
                        raise InputError(f"{url} is larger than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
                    file.write(piece)
    except BaseException:
        await asyncio.to_thread(target.unlink, missing_ok=True)
        raise


async def _unpacked(response: httpx.Response, url: str) -> AsyncGenerator[bytes, None]:
    """The content of an answer, in pieces that are small however much a few bytes unpack to.

    Nothing packed is asked for. Stores of files send what was stored packed with gzip all the same.

    Raises:
        InputError: it is packed in another way, or is not whole.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in _PLAIN | _GZIP:
        raise InputError(f"{url} is packed with {coding!r}; only gzip is unpacked")
    if coding in _PLAIN:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    unpacker = zlib.decompressobj(_GZIP_BITS)
    async for chunk in response.aiter_raw():
        while chunk:
            yield unpacker.decompress(chunk, _PIECE)
            chunk = unpacker.unconsumed_tail
        if unpacker.unused_data:
            raise InputError(f"{url} goes on behind the end of what is packed")
    yield unpacker.flush()
    if not unpacker.eof:
        raise InputError(f"{url} broke off while it was unpacked")


def _refuse_other_schemes(url: str) -> None:
    if urlsplit(url).scheme.lower() not in ("http", "https"):
        raise ForbiddenError(f"{url}: only http and https addresses are fetched")


async def _request(url: httpx.URL, settings: Settings, proxy: str | None) -> dict[str, Any]:
    """What is asked for `url`: itself, once it was found public, at the address that was looked up.

    The connection goes to that very address: looked up again, the name might lead elsewhere. A proxy is given
    the name, since it makes the connection, and the certificate is for the name.
    """
    headers = {"Accept-Encoding": "identity"}
    if settings.allow_private_urls:
        return {"url": url, "headers": headers}
    addresses = await _addresses(url)
    for address in addresses:
        if not _is_public(ipaddress.ip_address(address)):
            raise ForbiddenError(
                f"{url} leads to the private address {address}; set JARVIS_ALLOW_PRIVATE_URLS=1 to allow that"
            )
    if proxy is not None:
        return {"url": url, "headers": headers}
    return {
        "url": url.copy_with(host=addresses[0]),
        "headers": {**headers, "Host": url.netloc.decode("ascii")},
        "extensions": {"sni_hostname": url.raw_host.decode("ascii")},
    }


def _proxy_of(url: httpx.URL) -> str | None:
    """The proxy that the environment names for a URL; by its name, not by the address that it leads to."""
    known = getproxies()
    proxy = known.get(url.scheme) or known.get("all")
    if not proxy or proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address, and each IPv4 address that it carries, is one host of the public internet."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _OF_MACHINES)
    if address in _NAT64:
        return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST and (address.sixtofour is None or _is_public(address.sixtofour))


async def _addresses(url: httpx.URL) -> list[str]:
    """The addresses of a URL's host, which may be written as one."""
    try:
        return [str(ipaddress.ip_address(url.host))]
    except ValueError:
        pass
    try:
        # The name as it is sent: the system's own way to write other letters is an older one (faß, fass).
        host = url.raw_host.decode("ascii")
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        told = f"{url} can not be fetched: the host {url.host!r} is not known"
        raise InputError(told) from redacted_cause(error)
    return [str(info[4][0]).partition("%")[0] for info in found]
