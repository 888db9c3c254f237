"""Make a test fail that uses the network; connections to this machine are allowed.

with forbid_network():
    socket.create_connection(("huggingface.co", 443))      # NetworkForbiddenError
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


class NetworkForbiddenError(RuntimeError):
    """A test used the network. Not an OSError, so that no client retries."""


@contextmanager
def forbid_network() -> Iterator[None]:
    """Within the block, connecting to, sending to, or looking up another machine raises.

    Applies to the whole process; may be nested. Unix sockets are allowed.

    Raises:
        NetworkForbiddenError: in the code that used the network.
    """
    with (
        patch.object(socket.socket, "connect", _guarded(socket.socket.connect, _address)),
        patch.object(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex, _address)),
        patch.object(socket.socket, "sendto", _guarded(socket.socket.sendto, _address)),
        patch.object(socket, "getaddrinfo", _guarded(socket.getaddrinfo, lambda host, *_, **__: host)),
    ):
        yield


def _guarded(function: Callable[..., Any], host_of: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if not _is_here(host := host_of(*args, **kwargs)):
            raise NetworkForbiddenError(f"this test may not use the network: {host}")
        return function(*args, **kwargs)

    return guarded


def _address(own: socket.socket, *args: Any) -> Any:
    """The host of the address, which is the last argument of the three methods; None for a Unix socket."""
    return args[-1][0] if own.family in (socket.AF_INET, socket.AF_INET6) else None


def _is_here(host: Any) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(name).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
