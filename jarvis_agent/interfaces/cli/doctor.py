"""`jarvis doctor`: what is installed and reachable, and how to fix what is not. It shows no keys."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from huggingface_hub import constants
from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.text import Text

from jarvis_agent.backends.starter.models import MINILM, STARTERS, find_weights, may_download
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Frozen
from jarvis_agent.llm.chat_model import resolve_model
from jarvis_agent.llm.errors import describe_model

DISTRIBUTION = "langchain-hugginggpt"

_MARKS = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "red")}


class Check(Frozen):
    """One check. "note": something optional is missing; "problem": requests cannot be run."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


class Report(Frozen):
    """All checks; `ready` is False if one is a problem."""

    ready: bool
    checks: list[Check]


def examine(settings: Settings) -> Report:
    """Run every check. Takes up to 10 seconds if the Hub does not answer."""
    hub, llm, token = _hub(settings), _language_model(settings), settings.token is not None
    online, local = hub.state == "ok", find_spec("transformers") is not None
    importable = [name for name, one in STARTERS.items() if all(map(find_spec, one.needs))]
    installed = {name for name in importable if find_weights(STARTERS[name])}
    absent = [one for name, one in STARTERS.items() if name not in installed]
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
    found = f"{len(installed)} of {len(STARTERS)}; missing: {', '.join(one.id for one in absent) or 'none'}"
    extras = _install(",".join(sorted({one.extra for one in absent if one.extra})))
    installs = dict.fromkeys(extras if one.extra else one.install for one in absent)
    checks = [
        _check("Python", True, system),
        llm,
        _check("offline planner", can_plan, planner, _install("starter"), needed=llm.state != "ok"),
        *_extras(),
        _gpu(),
        hub,
        _check("Hugging Face token", token, "found" if token else "none", "set HF_TOKEN for hosted models"),
        _check("starter models", not absent, found, "; ".join(installs)),
        _check("experts", bool(experts), experts, _install("starter,starter-tts"), needed=True),
        _output_directory(settings),
    ]
    return Report(ready=all(check.state != "problem" for check in checks), checks=checks)


def _check(name: str, ok: bool, found: str, advice: str = "", *, needed: bool = False) -> Check:
    """Return a check; `advice` is shown if it is not ok, which is a problem if it is `needed`."""
    if ok:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="problem" if needed else "note", found=found or "none", advice=advice)


def _install(extras: str) -> str:
    return f'pip install "{DISTRIBUTION}[{extras}]"'


def _language_model(settings: Settings) -> Check:
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
        return _check("language model", False, str(error), f"change or unset {source}", needed=True)
    if model is not None:
        return _check("language model", True, f"{describe_model(model)}, from {source}")
    advice = "set OPENAI_API_KEY, or JARVIS_MODEL and JARVIS_BASE_URL for your own server, or HF_TOKEN"
    return _check("language model", False, "none; requests are planned offline", advice)


def _extras() -> Iterator[Check]:
    """One check per extra. Nothing is imported."""
    missing: dict[str, list[str]] = {}
    for one in map(Requirement, requires(DISTRIBUTION) or []):
        for extra in set(re.findall(r'extra == "([\w-]+)"', str(one.marker))) - {"all", "dev"}:
            lacking = missing.setdefault(extra, [])
            if one.marker and one.marker.evaluate({"extra": extra}) and not _is_installed(one):
                lacking.append(f"{one.name}{one.specifier}")
    for name, lacking in missing.items():
        found = f"missing: {', '.join(lacking)}" if lacking else "installed"
        yield _check(f"extra {name}", not lacking, found, _install(name))


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _gpu() -> Check:
    if find_spec("torch") is None:
        return _check("GPU", False, "unknown: torch is not installed", _install("local"))
    import torch

    advice = "if there is one, install torch for it: https://pytorch.org/get-started/locally"
    found = torch.cuda.is_available() or torch.backends.mps.is_available()
    return _check("GPU", found, "used by torch" if found else "none; models run on the CPU", advice)


def _hub(settings: Settings) -> Check:
    import httpx

    name = "Hugging Face Hub"
    if settings.offline:
        return _check(name, False, "not used: JARVIS_OFFLINE or HF_HUB_OFFLINE is set")
    url = httpx.URL(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    shown = url.copy_with(userinfo=b"", query=None)
    try:
        httpx.get(f"{url}/api/models?limit=1", timeout=10, follow_redirects=True).raise_for_status()
    except httpx.HTTPError as error:
        reason = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1"
        return _check(name, False, f"{shown} cannot be reached ({reason})", advice)
    return _check(name, True, f"{shown} answers")


def _output_directory(settings: Settings) -> Check:
    """Whether files can be written there. Nothing is left behind."""
    target = settings.output_dir.absolute()
    try:
        with tempfile.TemporaryFile(dir=next(p for p in (target, *target.parents) if p.exists())):
            return _check("output directory", True, str(target))
    except OSError as error:
        found = f"{target} cannot be written ({error.strerror or error})"
        return _check("output directory", False, found, "set JARVIS_OUTPUT_DIR or --out", needed=True)


def report_text(report: Report) -> RenderableType:
    """Return the report with one line per check and its advice below."""
    lines = []
    for check in report.checks:
        mark, style = _MARKS[check.state]
        lines.append(Text.assemble((f"{mark} ", style), (check.name, "bold"), f": {clean(check.found)}"))
        if check.advice:
            lines.append(Text(f"    → {clean(check.advice)}", "dim"))
    verdict = "Requests can be run." if report.ready else "Requests cannot be run: see the checks marked ✗."
    return Group(*lines, Text(verdict, "bold"))
