"""What the environment says about keys and proxies, as people set it."""

import logging
import os
import re
import string
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jarvis_agent.core.errors import ConfigError

logger = logging.getLogger(__name__)

_AROUND = string.whitespace + "\"'`\ufeff\u200b\u00a0\u3000“”‘’"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_SCHEMES = ("http", "https", "socks5", "socks5h")


def clean_key(key: str) -> str:
    """A key without what copying adds around it: blanks, ends of lines, quotes, a byte order mark.

    Raises ValueError: it has something inside that no header of HTTP can send. The message does not show it.
    """
    key = key.strip(_AROUND)
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError("it has a blank or a letter that is not ASCII inside; copy the key again")
    return key


def key_of(variable: str) -> str:
    """The key in an environment variable; "" if there is none.

    Raises ConfigError: it cannot be sent; the message names the variable.
    """
    try:
        return clean_key(os.environ.get(variable, ""))
    except ValueError as error:
        raise ConfigError(f"{variable}: {error}") from None


def set_up_proxies(variables: MutableMapping[str, str] = os.environ) -> None:
    """Except this machine from the proxies of the environment, for all clients of a program of ours."""
    proxies = respell_proxies(variables)
    name = "no_proxy" if "no_proxy" in variables else "NO_PROXY"  # the lower-case one is read first
    hosts, direct = variables.get(name, ""), ",".join(LOOPBACK)
    if proxies and hosts != "*" and direct not in hosts:
        variables[name] = f"{hosts},{direct}" if hosts else direct


def respell_proxies(variables: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """The proxies of the environment, whose "socks://" becomes "socks5://", as clients raise an error.

    Clients of models and of the Hub read the environment themselves, and when they are first used.
    """
    proxies = {name: proxy for name, proxy in variables.items() if name.lower() in _PROXIES and proxy}
    for name, proxy in proxies.items():
        if "://" in proxy and proxy_url(proxy) != proxy:
            logger.warning("%s begins with socks://, and is used as socks5://", name)
            variables[name] = proxy_url(proxy)
    return proxies


def proxy_url(proxy: str) -> str:
    """The URL of a proxy of the environment. "socks://", as GNOME writes it, is "socks5://"."""
    return re.sub("^socks:", "socks5:", proxy) if "://" in proxy else f"http://{proxy}"


def is_loopback(url: str) -> bool:
    """Whether a URL points to this machine, for which no proxy of the environment is meant."""
    host = urlsplit(url).hostname or ""
    return host in LOOPBACK or host.startswith("127.")


def direct_clients() -> dict[str, Any]:
    """What has a ChatOpenAI ask its server without the proxies of the environment."""
    import httpx

    # A kept connection would fail in another event loop, and be shared with forked children.
    options: dict[str, Any] = {"trust_env": False, "limits": httpx.Limits(max_keepalive_connections=0)}
    clients = {"http_client": httpx.Client(**options), "http_async_client": httpx.AsyncClient(**options)}
    return {**clients, "openai_proxy": None}


def check_proxies() -> None:
    """Raise ConfigError if a proxy of the environment is of a kind that no client knows."""
    for name, proxy in os.environ.items():
        scheme, separator, _ = proxy.partition("://")
        if name.lower() in _PROXIES and separator and scheme.lower() not in _SCHEMES:
            raise ConfigError(f"{name} begins with {scheme}://; a proxy has http://, https:// or socks5://")


def user_cache() -> Path:
    """The folder of what this user's runs may keep and may lose. Raises RuntimeError: there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jarvis_agent"
