"""Safe downloads: http(s) only, public addresses only, with limits on size and time.

path = await fetch("https://example.org/cat.jpg", folder / "cat.jpg", settings)

If the environment sets a proxy for the URL (HTTPS_PROXY, NO_PROXY), the addresses are checked here too. The
proxy gets the host name and resolves it itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from jarvis_agent import __version__
from jarvis_agent.core.environment import proxy_url
from jarvis_agent.core.errors import ForbiddenError, InputError, describe_error, redacted_cause
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.run_directory import disk_errors

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
USER_AGENT = f"langchain-hugginggpt/{__version__} (https://pypi.org/project/langchain-hugginggpt)"
"""Some sites, such as Wikimedia, refuse clients that do not name themselves and a contact."""

_HEADERS = {"Accept-Encoding": "identity", "User-Agent": USER_AGENT}
_MAX_REDIRECTS = 5
# The network of all public IPv6 hosts, and the network whose addresses end in an IPv4 address.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Metadata services of clouds within networks that Python regards as public: protocol assignments, and Azure.
_METADATA = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("168.63.129.16/32"))


async def fetch(
    url: str, target: Path, settings: Settings, *, server: str = "", headers: Mapping[str, str] | None = None
) -> Path:
    """Download `url` to `target` and return `target`. A failed download leaves no file.

    `server` is a URL of a server that the user named: it may be a private one, and it alone gets `headers`.

    Raises:
        ForbiddenError: the URL or a redirect is not http(s), or resolves to a private address.
        InputError: it cannot be fetched in 30 s, or is larger than `max_file_bytes`.
    """
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(_MAX_REDIRECTS + 1):
                if urlsplit(url).scheme.lower() not in ("http", "https"):
                    raise ForbiddenError(f"{url}: only http and https addresses are fetched")
                parsed = httpx.URL(url)
                proxy = _proxy_of(parsed)
                own = httpx.URL(server)  # without a scheme if there is none
                is_named = (parsed.scheme, parsed.host, parsed.port) == (own.scheme, own.host, own.port)
                named: dict[str, Any] = {"url": parsed, "headers": {**_HEADERS, **(headers or {})}}
                request = named if is_named else await _request(parsed, settings, proxy)
                async with (
                    httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(proxy=proxy)) as client,
                    client.stream("GET", **request) as response,
                ):
                    if response.has_redirect_location:
                        url = str(parsed.join(response.headers["location"]))
                        continue
                    response.raise_for_status()
                    await _save(response, url, target, settings.max_file_bytes)
                    return target
        raise InputError(f"{url} redirects more than {_MAX_REDIRECTS} times")
    except TimeoutError as error:
        raise InputError(f"{url} did not arrive within {TIMEOUT_S:g} s") from redacted_cause(error)
    except httpx.HTTPStatusError as error:
        message = f"{url} answered {error.response.status_code}; check the address"
        raise InputError(message) from redacted_cause(error)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
        # httpx raises an ImportError for a SOCKS proxy if its extra is missing.
        raise InputError(f"{url} cannot be fetched", detail=describe_error(error)) from redacted_cause(error)


async def _save(response: httpx.Response, url: str, target: Path, limit: int) -> None:
    # The request asks for no compression, but object stores send files stored as gzip in that form. Other
    # codings may unpack a few bytes to a huge piece.
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", "gzip"):
        raise InputError(f"{url} is compressed with {coding!r}; only gzip is supported")
    size = 0
    try:
        with disk_errors(url), target.open("wb") as file:
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > limit:
                    helps = limit_of("JARVIS_MAX_FILE_BYTES")
                    raise InputError(f"{url} is larger than {limit:,} bytes", advice=helps)
                file.write(piece)
    except BaseException:
        await asyncio.to_thread(target.unlink, missing_ok=True)
        raise


async def _request(url: httpx.URL, settings: Settings, proxy: str | None) -> dict[str, Any]:
    """The arguments of a request for `url`, whose addresses are checked first.

    The connection uses the checked address, because a second lookup may return another one (DNS rebinding).
    The Host header and the TLS certificate use the name. A proxy gets the name, since it connects itself.
    """
    if settings.allow_private_urls:
        return {"url": url, "headers": _HEADERS}
    addresses = await _addresses(url)
    for address in addresses:
        if not _is_public(ipaddress.ip_address(address)):
            advice = "set JARVIS_ALLOW_PRIVATE_URLS=1 to allow that"
            raise ForbiddenError(f"{url} leads to the private address {address}", advice=advice)
    if proxy is not None:
        return {"url": url, "headers": _HEADERS}
    return {
        "url": url.copy_with(host=addresses[0]),
        "headers": {**_HEADERS, "Host": url.netloc.decode("ascii")},
        "extensions": {"sni_hostname": url.raw_host.decode("ascii")},
    }


def _proxy_of(url: httpx.URL) -> str | None:
    """The proxy that the environment sets for a URL."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy_url(proxy) if proxy and not proxy_bypass(url.host) else None


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address, and any IPv4 address embedded in it, is a single public host."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _METADATA)
    if address in _NAT64:
        return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST and (address.sixtofour is None or _is_public(address.sixtofour))


async def _addresses(url: httpx.URL) -> list[str]:
    """The addresses of a URL's host, which may be an address itself."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(url.host))]
    try:
        # The name in the form that is sent (IDNA 2008); the system would use IDNA 2003 (faß becomes fass).
        host = url.raw_host.decode("ascii")
        answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = f"{url} cannot be fetched: the host {url.host!r} is not known"
        raise InputError(message) from redacted_cause(error)
    return [str(info[4][0]).partition("%")[0] for info in answers]
