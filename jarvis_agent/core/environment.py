"""What the environment says about keys and proxies, as people set it.

clean_key(" 'hf_abc'\\n")       # "hf_abc"
set_up_proxies()              # this machine is never asked through a proxy
"""

from __future__ import annotations

import os
import string
from collections.abc import MutableMapping
from urllib.parse import urlsplit

from jarvis_agent.core.errors import ConfigError

_AROUND = string.whitespace + "\"'`\ufeff\u200b\u00a0\u3000“”‘’"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_SCHEMES = ("", "http", "https", "socks5", "socks5h")


def clean_key(key: str) -> str:
    """A key without what copying adds around it: blanks, ends of lines, quotes, a byte order mark.

    Raises:
        ValueError: it has something inside that no header of HTTP can send. The message does not show it.
    """
    key = key.strip(_AROUND)
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError("it has a blank or a letter that is not ASCII inside; copy the key again")
    return key


def key_of(variable: str) -> str:
    """The key in an environment variable; "" if there is none.

    Raises:
        ConfigError: it cannot be sent; the message names the variable.
    """
    try:
        return clean_key(os.environ.get(variable, ""))
    except ValueError as error:
        raise ConfigError(f"{variable}: {error}") from None


def set_up_proxies(variables: MutableMapping[str, str] = os.environ) -> None:
    """Except this machine from the proxies of the environment, in all clients: few do so themselves.

    "socks://", as GNOME writes it, becomes "socks5://".
    """
    proxies = [name for name in variables if name.lower() in _PROXIES and variables[name]]
    for name in proxies:
        if variables[name].lower().startswith("socks://"):
            variables[name] = f"socks5{variables[name][len('socks') :]}"
    name = "no_proxy" if "no_proxy" in variables else "NO_PROXY"  # the lower-case one is read first
    known = [host.strip() for host in variables.get(name, "").split(",") if host.strip()]
    if proxies and "*" not in known and (missing := [host for host in _LOOPBACK if host not in known]):
        variables[name] = ",".join([*known, *missing])


def check_proxies() -> None:
    """Raise ConfigError if a proxy of the environment is of a kind that no client knows."""
    for name, value in os.environ.items():
        scheme = urlsplit(value).scheme.lower() if "://" in value else ""
        if name.lower() in _PROXIES and scheme not in _SCHEMES:
            raise ConfigError(f"{name} begins with {scheme}://; a proxy has http://, https:// or socks5://")
