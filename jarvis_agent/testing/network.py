"""Make a test fail that uses the network; connections to this machine are allowed.

with forbid_network():
    socket.create_connection(("huggingface.co", 443))      # NetworkForbiddenError
"""

from __future__ import annotations

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
        patch.object(socket.socket, "connect", _guarded(socket.socket.connect)),
        patch.object(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex)),
        patch.object(socket.socket, "sendto", _guarded(socket.socket.sendto)),
        patch.object(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo)),
    ):
        yield


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, *args: Any) -> Any:
        # The address is the last argument of all three methods.
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(args[-1][0]):
            raise NetworkForbiddenError(f"this test may not speak with {args[-1][0]}")
        return method(self, *args)

    return guarded


def _guarded_lookup(lookup: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_here(host):
            raise NetworkForbiddenError(f"this test may not look up {host}")
        return lookup(host, *args, **kwargs)

    return guarded


def _is_here(host: Any) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(name).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
