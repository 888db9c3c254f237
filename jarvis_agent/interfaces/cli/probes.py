"""Checks of what a request needs from the network: the Hugging Face Hub and the language model's server.

check_hub(settings)         # Check(name="Hugging Face Hub", state="note", found="… cannot be reached …")
check_model(settings)       # the chat model, where it was configured, and whether its server answers
"""

from __future__ import annotations

import os
from typing import Any, Literal

from jarvis_agent.core.errors import ConfigError, JarvisError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Frozen
from jarvis_agent.llm.chat_model import NO_MODEL, resolve_model
from jarvis_agent.llm.errors import describe_model, explain

TIMEOUT_S = 10.0
"""Seconds that a server has to answer."""

_SHOWN = 5


class Check(Frozen):
    """One check. "note": something optional is missing; "problem": requests cannot be run as configured."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def check(name: str, ok: bool, found: str, advice: str = "", *, needed: bool = False) -> Check:
    """Return a check; `advice` is shown if it is not ok, which is a problem if it is `needed`."""
    if ok:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="problem" if needed else "note", found=found or "none", advice=advice)


def check_hub(settings: Settings) -> Check:
    """Whether the Hub answers."""
    import httpx

    name = "Hugging Face Hub"
    if settings.offline:
        return check(name, False, "not used: JARVIS_OFFLINE or HF_HUB_OFFLINE is set")
    url = httpx.URL(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    shown = url.copy_with(userinfo=b"", query=None)
    try:
        answer = httpx.get(f"{url}/api/models?limit=1", timeout=TIMEOUT_S, follow_redirects=True)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        reason = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1"
        return check(name, False, f"{shown} cannot be reached ({reason})", advice)
    return check(name, True, f"{shown} answers")


def check_cluster(address: str) -> Check:
    """What the cluster has, or why it cannot be used."""
    from jarvis_agent.backends.ray.cluster import describe_cluster

    try:
        return check("cluster", True, f"{address} has {describe_cluster(address)}")
    except JarvisError as error:
        return check("cluster", False, str(error), "change or unset JARVIS_CLUSTER", needed=True)


def check_model(settings: Settings) -> Check:
    """Which chat model is configured, and whether its server answers and lists it. Nothing is generated."""
    name = "language model"
    given = {
        "JARVIS_BASE_URL": settings.base_url,
        "JARVIS_MODEL": settings.model,
        "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY"),
        "the Hugging Face token": True,
    }
    source = next(name for name, value in given.items() if value)
    try:
        model = resolve_model(None, settings)
    except ConfigError as error:
        return check(name, False, str(error), f"change or unset {source}", needed=True)
    if model is None:
        why = " (JARVIS_MODEL=none)" if settings.model == NO_MODEL else ""
        advice = "set OPENAI_API_KEY, or JARVIS_MODEL and JARVIS_BASE_URL for your own server, or HF_TOKEN"
        return check(name, False, f"none{why}; requests are planned offline", "" if why else advice)
    described = describe_model(model)
    try:
        listed = _listed_models(model)
    except Exception as error:
        problem = str(explain(error, model, settings))
        return check(name, False, problem, f"it comes from {source}", needed=True)
    if listed and getattr(model, "model_name", "") not in (*listed, "default"):
        more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
        advice = f"if requests fail, set JARVIS_MODEL to one of {', '.join(listed[:_SHOWN])}{more}"
        return check(name, False, f"{described}, from {source}; its server does not list it", advice)
    return check(name, True, f"{described}, from {source}")


def _listed_models(model: Any) -> list[str]:
    """The models of an OpenAI-compatible server; [] for other providers, which are not asked."""
    client = getattr(model, "root_client", None)
    if client is None:
        return []
    return [one.id for one in client.with_options(timeout=TIMEOUT_S, max_retries=0).models.list()]
