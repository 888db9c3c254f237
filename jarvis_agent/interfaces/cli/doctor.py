"""`jarvis doctor`: what is installed and reachable, and how to fix what is not. It shows no keys.

report = examine(settings)      # a Report of Checks
check_hub(settings)             # Check(name="Hugging Face Hub", state="note", found="… cannot be reached …")
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import constants
from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent import __version__
from jarvis_agent.backends.experts.background import find_server
from jarvis_agent.backends.experts.protocol import PROTOCOL
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, find_weights, may_download
from jarvis_agent.core.environment import check_proxies
from jarvis_agent.core.errors import ConfigError, JarvisError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Frozen
from jarvis_agent.llm.chat_model import NO_MODEL, resolve_model
from jarvis_agent.llm.errors import base_url_of, describe_model, explain

DISTRIBUTION = "langchain-hugginggpt"
TIMEOUT_S = 10.0
"""Seconds that a server has to answer."""

HOSTED_ADVICE = (
    "set HF_TOKEN for hosted models; a free account has no credits for them and buys some, while Spaces "
    "(JARVIS_SPACES=search) and models on this machine need none"
)

_SHOWN = 5
_MARKS = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "red")}


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
        check_proxies()
        answer = httpx.get(f"{url}/api/models?limit=1", timeout=TIMEOUT_S, follow_redirects=True)
        answer.raise_for_status()
    except ConfigError as error:
        return check(name, False, str(error), "change or unset it", needed=True)
    except httpx.HTTPError as error:
        reason = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1"
        return check(name, False, f"{shown} cannot be reached ({reason})", advice)
    return check(name, True, f"{shown} answers")


def check_experts(settings: Settings) -> Check:
    """Which expert server runs local models, and what it has loaded; or why it cannot be used."""
    name, server = "expert server", find_server(settings)
    if server is None:
        advice = "`jarvis experts --background` keeps models loaded for all of your agents"
        return check(name, False, "none; each process loads local models itself", advice)
    try:
        status = server.status()
    except JarvisError as error:
        return check(name, False, str(error), "change or unset JARVIS_EXPERTS", needed=True)
    found = f"{server.address}, version {status['version']}"
    if status["protocol"] != PROTOCOL:
        other = f"{found}, speaks protocol {status['protocol']}, and this is {PROTOCOL} ({__version__})"
        return check(name, False, other, "update the older one", needed=True)
    models = [f"{loaded['model']} ({loaded['bytes'] / 1e6:.0f} MB)" for loaded in status["loaded"]]
    return check(name, True, f"{found}; loaded: {', '.join(models) or 'no model yet'}")


def check_model(settings: Settings) -> Check:
    """Which chat model is configured, and whether its server answers and lists it. Nothing is generated."""
    name = "language model"
    sources = {
        "JARVIS_BASE_URL": settings.base_url,
        "JARVIS_MODEL": settings.model,
        "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY"),
        "the Hugging Face token": settings.hf_token and not settings.offline,
        "`jarvis setup`": True,
    }
    source = next(name for name, value in sources.items() if value)
    try:
        model = resolve_model(None, settings)
    except ConfigError as error:
        return check(name, False, str(error), f"change or unset {source}", needed=True)
    if model is None:
        why = " (JARVIS_MODEL=none)" if settings.model == NO_MODEL else ""
        advice = (
            "run `jarvis setup`, or set OPENAI_API_KEY or HF_TOKEN, or JARVIS_MODEL and JARVIS_BASE_URL for "
            "your own server"
        )
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
    if client is None or base_url_of(model) is None:
        return []
    return [one.id for one in client.with_options(timeout=TIMEOUT_S, max_retries=0).models.list()]


class Report(Frozen):
    """All checks; `ready` is False if one is a problem."""

    ready: bool
    checks: list[Check]


def examine(settings: Settings) -> Report:
    """Run every check. A server that does not answer takes 10 seconds."""
    hub, llm, token = check_hub(settings), check_model(settings), settings.token is not None
    online, local = hub.state == "ok", find_spec("transformers") is not None
    importable = [name for name, starter in STARTERS.items() if all(map(find_spec, starter.needs))]
    installed = {name for name in importable if find_weights(STARTERS[name])}
    absent = [starter for name, starter in STARTERS.items() if name not in installed]
    usable = {
        "starter models": bool(installed),
        "downloaded models": local and any(Path(constants.HF_HUB_CACHE).glob("models--*")),
        "models of the Hub, downloaded when needed": local and online,
        "models hosted by Hugging Face": online and token,
    }
    experts = ", ".join(name for name, is_usable in usable.items() if is_usable)
    can_plan = MINILM in installed or (
        MINILM in importable and online and may_download(STARTERS[MINILM], settings)
    )
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    planner = MINILM if can_plan else f"{MINILM} is missing"
    found = f"{len(installed)} of {len(STARTERS)}"
    found += f"; missing: {', '.join(starter.id for starter in absent)}" if absent else ""
    extras = install_command(",".join(sorted({starter.extra for starter in absent if starter.extra})))
    installs = dict.fromkeys(extras if starter.extra else starter.install for starter in absent)
    checks = [
        check("Python", True, system),
        llm,
        check("offline planner", can_plan, planner, install_command("starter"), needed=llm.state != "ok"),
        *_extras(),
        _gpu(),
        check_experts(settings),
        hub,
        check("Hugging Face token", token, "found" if token else "none", HOSTED_ADVICE),
        check("starter models", not absent, found, "; ".join(installs)),
        check("experts", bool(experts), experts, install_command("starter"), needed=True),
        _output_directory(settings),
    ]
    return Report(ready=all(each.state != "problem" for each in checks), checks=checks)


def install_command(extras: str) -> str:
    """The command that installs extras of this distribution, such as "starter,ui"."""
    return f'pip install "{DISTRIBUTION}[{extras}]"'


def _extras() -> Iterator[Check]:
    """One check per extra. Nothing is imported."""
    missing: dict[str, list[str]] = {}
    for requirement in map(Requirement, requires(DISTRIBUTION) or []):
        for extra in set(re.findall(r'extra == "([\w-]+)"', str(requirement.marker))) - {"all", "dev"}:
            lacking = missing.setdefault(extra, [])
            if (
                requirement.marker
                and requirement.marker.evaluate({"extra": extra})
                and not _is_installed(requirement)
            ):
                lacking.append(f"{requirement.name}{requirement.specifier}")
    for name, lacking in missing.items():
        found = f"missing: {', '.join(lacking[:_SHOWN])}" if lacking else "installed"
        found += f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        yield check(f"extra {name}", not lacking, found, install_command(name))


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _gpu() -> Check:
    if find_spec("torch") is None:
        return check("GPU", False, "unknown: torch is not installed", install_command("local"))
    import torch

    advice = "if there is one, install torch for it: https://pytorch.org/get-started/locally"
    found = torch.cuda.is_available() or torch.backends.mps.is_available()
    return check("GPU", found, "used by torch" if found else "none; models run on the CPU", advice)


def _output_directory(settings: Settings) -> Check:
    """Whether files can be written there. Nothing is left behind."""
    target = settings.output_dir.absolute()
    try:
        with tempfile.TemporaryFile(dir=next(p for p in (target, *target.parents) if p.exists())):
            return check("output directory", True, str(target))
    except OSError as error:
        found = f"{target} cannot be written ({error.strerror or error})"
        return check("output directory", False, found, "set JARVIS_OUTPUT_DIR or --out", needed=True)


def report_text(report: Report) -> RenderableType:
    """Return the report with one line per check and its advice below."""
    lines = Table.grid(padding=(0, 1))
    for one in report.checks:
        mark, style = _MARKS[one.state]
        lines.add_row(Text(mark, style), Text.assemble((one.name, "bold"), f": {clean(one.found)}"))
        if one.advice:
            lines.add_row("", Text(f"→ {clean(one.advice)}", "dim"))
    verdict = "Requests can be run." if report.ready else "Fix the checks marked ✗ to run requests."
    return Group(lines, Text(verdict, "bold"))
