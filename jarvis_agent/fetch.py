"""Fetch a URL that the user named: http(s) only, public addresses only, within limits of size and time.

path = await fetch("https://example.org/cat.jpg", folder / "cat.jpg", settings)
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jarvis_agent.errors import ForbiddenError, InputError
from jarvis_agent.media import writing
from jarvis_agent.settings import Settings

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
# Networks whose addresses end in the IPv4 address that they lead to: NAT64 and the old compatible ones.
_ENDS_IN_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
# For the NAT64 of one's own network, where an address says nothing of where it leads.
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")


async def fetch(url: str, target: Path, settings: Settings) -> Path:
    """Download `url` to `target` and return it. Nothing is left behind when it fails.

    Raises:
        ForbiddenError: the URL, or one that it redirects to, is not http(s) or leads to a private address.
        InputError: it can not be fetched, or is larger than `settings.max_file_bytes`.
    """
    import httpx

    try:
        async with asyncio.timeout(settings.url_timeout), httpx.AsyncClient(trust_env=True) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                _refuse_other_schemes(url)
                asked = httpx.URL(url)
                pinned = {} if settings.allow_private_urls else await _pin(asked)
                async with client.stream("GET", **{"url": asked, **pinned}) as response:
                    if response.has_redirect_location:
                        url = str(asked.join(response.headers["location"]))
                        continue
                    response.raise_for_status()
                    await _save(response, target, settings.max_file_bytes)
                    return target
        raise InputError(f"{url} redirects more than {_MAX_REDIRECTS} times")
    except TimeoutError as error:
        raise InputError(
            f"{url} did not arrive within {settings.url_timeout:g} s (JARVIS_URL_TIMEOUT)"
        ) from error
    except httpx.HTTPStatusError as error:
        raise InputError(f"{url} answered {error.response.status_code}; check the address") from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(f"{url} can not be fetched: {error or type(error).__name__}") from error


async def _save(response: httpx.Response, target: Path, limit: int) -> None:
    size = 0
    try:
        with writing(str(response.url)), target.open("wb") as file:
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > limit:
                    raise InputError(f"{response.url} is larger than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
                file.write(chunk)
    except BaseException:
        await asyncio.to_thread(target.unlink, missing_ok=True)
        raise


def _refuse_other_schemes(url: str) -> None:
    if urlsplit(url).scheme.lower() not in ("http", "https"):
        raise ForbiddenError(f"{url}: only http and https addresses are fetched")


async def _pin(url: httpx.URL) -> dict[str, Any]:
    """A request for `url` at an address that was looked up and found public.

    The connection goes to that very address: looked up again, the name might lead elsewhere.
    """
    addresses = await _addresses(url)
    for address in addresses:
        if not _is_public(ipaddress.ip_address(address)):
            raise ForbiddenError(
                f"{url} leads to the private address {address}; set JARVIS_ALLOW_PRIVATE_URLS=1 to allow that"
            )
    return {
        "url": url.copy_with(host=addresses[0]),
        "headers": {"Host": url.netloc.decode("ascii")},
        "extensions": {"sni_hostname": url.host},
    }


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address, and each IPv4 address that it carries, is one host of the public internet."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    if address.is_site_local or address in _LOCAL_NAT64:
        return False
    return all(_is_public(carried) for carried in _carried(address))


def _carried(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses within an IPv6 address: IPv4-mapped, 6to4, Teredo, NAT64."""
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _ENDS_IN_IPV4):
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [found for found in carried if found is not None]


async def _addresses(url: httpx.URL) -> list[str]:
    """The addresses of a URL's host, which may be written as one."""
    try:
        return [str(ipaddress.ip_address(url.host))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"{url} can not be fetched: the host {url.host!r} is not known") from error
    return [str(info[4][0]).partition("%")[0] for info in found]
