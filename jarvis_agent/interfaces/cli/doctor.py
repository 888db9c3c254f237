"""`jarvis doctor`: checks of the installation, each with what was found and how to fix it.

    report = examine(Settings())
    report.ready            # True if requests can be run
    report.checks[0]        # Check(name="Python", state="ok", found="3.11.7 on Linux x86_64", advice="")

Keys and tokens are never part of a report.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.text import Text

from jarvis_agent import __version__
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Frozen

DISTRIBUTION = "langchain-hugginggpt"
MIN_FREE_BYTES = 1_000_000_000

_COMBINED_EXTRAS = {"all", "dev"}
_MARKS = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "red")}

State = Literal["ok", "note", "problem"]


class Check(Frozen):
    """One check. "note": something optional is missing; "problem": requests cannot be run."""

    name: str
    state: State
    found: str
    advice: str = ""


class Report(Frozen):
    """All checks; `ready` is False if one is a problem."""

    ready: bool
    checks: list[Check]


def examine(settings: Settings) -> Report:
    """Run every check. Takes a few seconds if the Hub does not answer."""
    hub, llm, starters, cached = _hub(settings), _language_model(settings), _starters(), _cached_models()
    online, local = hub.state == "ok", find_spec("transformers") is not None
    sources = {
        "starter models": starters.state == "ok",
        "downloaded models": local and cached.state == "ok",
        "models of the Hub, downloaded when needed": local and online,
        "models hosted by Hugging Face": online and settings.token is not None,
    }
    usable = ", ".join(name for name, is_usable in sources.items() if is_usable)
    token = ("ok", "found") if settings.token else ("note", "none", "set HF_TOKEN for hosted models")
    experts = (
        ("ok", usable) if usable else ("problem", "no model can be run", _install("starter,starter-tts"))
    )
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    checks = [
        _check("Python", "ok", f"{system}, {DISTRIBUTION} {__version__}"),
        llm,
        _offline_planner(settings, online=online, needed=llm.state != "ok"),
        *_extras(),
        _gpu(),
        hub,
        _check("Hugging Face token", *token),
        starters,
        cached,
        _check("experts", *experts),
        _output_directory(settings),
    ]
    return Report(ready=all(check.state != "problem" for check in checks), checks=checks)


def _check(name: str, state: str, found: str, advice: str = "") -> Check:
    return Check.model_validate({"name": name, "state": state, "found": found, "advice": advice})


def _install(extras: str) -> str:
    return f'pip install "{DISTRIBUTION}[{extras}]"'


def _language_model(settings: Settings) -> Check:
    from jarvis_agent.llm.client import describe_model, resolve_model

    given = {"JARVIS_BASE_URL": settings.base_url, "JARVIS_MODEL": settings.model}
    given["OPENAI_API_KEY"] = os.environ.get("OPENAI_API_KEY")
    source = next((name for name, value in given.items() if value), "the Hugging Face token")
    try:
        model = resolve_model(None, settings)
    except ConfigError as error:
        return _check("language model", "problem", str(error), f"change or unset {source}")
    if model is not None:
        return _check("language model", "ok", f"{describe_model(model)}, from {source}")
    advice = "set OPENAI_API_KEY, or JARVIS_MODEL and JARVIS_BASE_URL for your own server, or HF_TOKEN"
    return _check("language model", "note", "none; requests are planned offline", advice)


def _offline_planner(settings: Settings, *, online: bool, needed: bool) -> Check:
    from jarvis_agent.backends.starter.models import MINILM, STARTERS, find_weights, may_download

    model = STARTERS[MINILM]
    if _has_modules(model.needs) and (find_weights(model) or (online and may_download(model, settings))):
        return _check("offline planner", "ok", f"uses {model.id}")
    state = "problem" if needed else "note"
    return _check("offline planner", state, f"{model.id} is not installed", _install("starter"))


def _has_modules(names: Iterable[str]) -> bool:
    return all(find_spec(name) is not None for name in names)


def _extras() -> Iterator[Check]:
    """One check per extra of the distribution that is not made of others. Nothing is imported."""
    try:
        requirements = [Requirement(text) for text in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:
        yield _check("extras", "note", f"unknown: {DISTRIBUTION} is not installed", "pip install -e .")
        return
    missing: dict[str, list[str]] = {}
    for one in requirements:
        extra = re.search(r"""extra == ["']([\w-]+)["']""", str(one.marker or ""))
        if one.marker is not None and extra is not None and extra[1] not in _COMBINED_EXTRAS:
            lacking = missing.setdefault(extra[1], [])
            if one.marker.evaluate({"extra": extra[1]}) and not _is_installed(one):
                lacking.append(f"{one.name}{one.specifier}")
    for name, lacking in missing.items():
        found, advice = ("missing: " + ", ".join(lacking), _install(name)) if lacking else ("installed", "")
        yield _check(f"extra {name}", "note" if lacking else "ok", found, advice)


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _gpu() -> Check:
    """Import torch, which takes seconds, only if there seems to be a GPU."""
    is_apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    if not (is_apple or any(Path("/dev", name).exists() for name in ("nvidiactl", "kfd", "dxg"))):
        return _check("GPU", "note", f"none; models run on {os.cpu_count()} CPU cores")
    if find_spec("torch") is None:
        return _check("GPU", "note", "found, but torch is not installed", _install("local"))
    import torch

    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    names = [f"{gpu.name} ({decimal(gpu.total_memory)})" for gpu in gpus]
    if names or torch.backends.mps.is_available():
        return _check("GPU", "ok", ", ".join(names) or "Apple GPU (mps)")
    advice = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
    return _check("GPU", "note", "found, but torch cannot use it", advice)


def _hub(settings: Settings) -> Check:
    import httpx

    if settings.offline:
        return _check("Hugging Face Hub", "note", "not used: JARVIS_OFFLINE or HF_HUB_OFFLINE is set")
    url = httpx.URL(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    shown = str(url.copy_with(userinfo=b"", query=None))
    try:
        httpx.get(f"{url}/api/models?limit=1", timeout=10, follow_redirects=True).raise_for_status()
    except httpx.HTTPError as error:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1"
        reason = f"status {status}" if status else type(error).__name__
        return _check("Hugging Face Hub", "note", f"{shown} cannot be reached ({reason})", advice)
    return _check("Hugging Face Hub", "ok", f"{shown} answers")


def _starters() -> Check:
    from jarvis_agent.backends.starter.models import STARTERS, find_weights

    absent = [one for one in STARTERS.values() if not _has_modules(one.needs) or find_weights(one) is None]
    found = f"{len(STARTERS) - len(absent)} of {len(STARTERS)} are installed"
    found += f"; missing: {', '.join(one.id for one in absent)}" if absent else ""
    extras = sorted({one.extra for one in absent if one.extra})
    commands = [
        *([_install(",".join(extras))] if extras else []),
        *(m.install for m in absent if not m.extra),
    ]
    state = "note" if len(absent) == len(STARTERS) else "ok"
    return _check("starter models", state, found, "; ".join(commands))


def _cached_models() -> Check:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = [one for one in scan_cache_dir(constants.HF_HUB_CACHE).repos if one.repo_type == "model"]
    except CacheNotFound:
        repos = []
    if not repos:
        return _check("downloaded models", "note", "none")
    size, names = decimal(sum(one.size_on_disk for one in repos)), sorted(one.repo_id for one in repos)
    return _check("downloaded models", "ok", f"{len(repos)}, {size}: {', '.join(names)}")


def _output_directory(settings: Settings) -> Check:
    """Whether files can be written there. Nothing is left behind."""
    target = settings.output_dir.absolute()
    existing = next(path for path in (target, *target.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        found = f"{target} cannot be written ({error.strerror or error})"
        return _check("output directory", "problem", found, "set JARVIS_OUTPUT_DIR or --out")
    low = free < MIN_FREE_BYTES
    advice = "free some space: models and results need it" if low else ""
    return _check("output directory", "note" if low else "ok", f"{target}, {decimal(free)} free", advice)


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
