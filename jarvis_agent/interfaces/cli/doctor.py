"""`jarvis doctor`: what is installed and reachable, and how to fix what is not. It shows no keys."""

import os
import platform
import re
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Any, Literal

from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jarvis_agent.backends.remote_experts import find_server
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, is_installed
from jarvis_agent.core.environment import check_proxies
from jarvis_agent.core.errors import ConfigError, JarvisError, TransientError, install_command
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Frozen
from jarvis_agent.llm.chat_model import NO_MODEL, base_url_of, describe_model, resolve_model
from jarvis_agent.llm.client import explain
from jarvis_agent.planning.offline.network import PLANNER
from jarvis_agent.selection.model_registry import ModelRegistry

DISTRIBUTION = "langchain-hugginggpt"
TIMEOUT_S = 10.0
"""Seconds that a server has to answer."""

_SHOWN = 5

State = Literal["ok", "note", "problem"]
_MARKS: dict[State, tuple[str, str]] = {
    "problem": ("✗", "red"),
    "note": ("–", "yellow"),
    "ok": ("✓", "green"),
}
"""The mark and style of each state, in the order in which a report lists them."""


class Check(Frozen):
    """One check. "note": something optional is missing; "problem": requests cannot be run as configured."""

    name: str
    state: State
    found: str
    advice: str = ""


def check(name: str, ok: bool, found: str, advice: str = "", *, needed: bool = False) -> Check:
    """Return a check; `advice` is shown if it is not ok, which is a problem if it is `needed`."""
    if ok:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="problem" if needed else "note", found=found, advice=advice)


def check_hub(settings: Settings) -> Check:
    """Whether the Hub answers."""
    import httpx

    name = "Hugging Face"
    if settings.offline:
        return check(name, False, "not used: JARVIS_OFFLINE or HF_HUB_OFFLINE is set")
    url = httpx.URL(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    address = url.copy_with(userinfo=b"", query=None)
    try:
        check_proxies()
        answer = httpx.get(f"{url}/api/models?limit=1", timeout=TIMEOUT_S, follow_redirects=True)
        answer.raise_for_status()
    except ConfigError as error:
        return check(name, False, str(error), "change or unset it", needed=True)
    except httpx.HTTPError as error:
        reason = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        advice = "check the network (HTTPS_PROXY, HF_ENDPOINT), or set JARVIS_OFFLINE=1"
        return check(name, False, f"{address} cannot be reached ({reason})", advice)
    token = "" if settings.token else "; no token (HF_TOKEN), which hosted models need"
    return check(name, True, f"{address} answers{token}")


def check_experts(settings: Settings) -> Check:
    """Which expert server runs local models, and what it has loaded; or why it cannot be used."""
    name, server = "expert server", find_server(settings)
    if server is None:
        return check(name, True, "none; each process loads local models itself")
    try:
        status = server.status()
        models = [f"{loaded['model']} ({loaded['bytes'] / 1e6:.0f} MB)" for loaded in status["loaded"]]
        loaded = ", ".join(models) or "no model yet"
        return check(name, True, f"{server.address}, version {status['version']}; loaded: {loaded}")
    except (JarvisError, ValueError, LookupError, TypeError) as error:
        own = error.note if isinstance(error, JarvisError) else Note(f"{server.address} is no expert server")
        usual = "try again later" if isinstance(error, TransientError) else "change or unset JARVIS_EXPERTS"
        return check(name, False, own.message, "; ".join(own.advice) or usual, needed=True)


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
    return [listed.id for listed in client.with_options(timeout=TIMEOUT_S, max_retries=0).models.list()]


class Report(Frozen):
    """All checks, problems first; `ready` is False if there is one."""

    ready: bool
    checks: list[Check]


async def examine(settings: Settings, registry: ModelRegistry, hub: Check) -> Report:
    """Run the other checks. A server that does not answer takes 10 seconds."""
    checks = [
        check_planning(settings),
        await check_tasks(registry),
        hub,
        check_experts(settings),
        check_output_directory(settings),
        check("extras", True, _extras()),
        check("machine", True, _machine()),
    ]
    order = list(_MARKS)
    checks.sort(key=lambda each: order.index(each.state))
    return Report(ready=checks[0].state != "problem", checks=checks)


def check_planning(settings: Settings) -> Check:
    """The language model; without one, it is a problem if requests cannot be planned offline either."""
    llm = check_model(settings)
    absent = [row.id for row in (STARTERS[MINILM], PLANNER) if not is_installed(row)]
    if llm.state == "ok" or not absent:
        return llm
    state = f"{llm.found}; {absent[0]}, which that needs, is missing"
    advice = "; or ".join(filter(None, [install_command("starter"), llm.advice]))
    return check(llm.name, False, state, advice, needed=True)


async def check_tasks(registry: ModelRegistry) -> Check:
    """How many task types can run here, as `jarvis tasks` lists them, and what the missing models need."""
    absent = [row.id for row in STARTERS.values() if not is_installed(row)]
    count = len(await registry.available_tasks())
    state = f"{count} of {len(TASKS)} task types can be run here (`jarvis tasks`)"
    state += f"; missing starter models: {', '.join(absent)}" if absent else ""
    return check("tasks", not absent, state, install_command("starter"), needed=not count)


def check_output_directory(settings: Settings) -> Check:
    """Whether files can be written there. Nothing is left behind."""
    name, target = "output directory", settings.output_dir.absolute()
    try:
        with tempfile.TemporaryFile(dir=next(p for p in (target, *target.parents) if p.exists())):
            return check(name, True, str(target))
    except OSError as error:
        state = f"{target} cannot be written ({error.strerror or error})"
        return check(name, False, state, "set JARVIS_OUTPUT_DIR or --out", needed=True)


def _extras() -> str:
    """The extras that are installed, and those that lack a package. Nothing is imported."""
    complete: dict[str, bool] = {}
    for requirement in map(Requirement, requires(DISTRIBUTION) or []):
        for extra in set(re.findall(r'extra == "([\w-]+)"', str(requirement.marker))) - {"all", "dev"}:
            is_needed = requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
            complete[extra] = complete.get(extra, True) and (not is_needed or _is_installed(requirement))
    names = {state: ", ".join(n for n, ok in complete.items() if ok == state) for state in (True, False)}
    return f"{names[True] or 'none'}; not installed: {names[False] or 'none'}"


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _machine() -> str:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if find_spec("torch") is None:
        return system
    import torch

    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    return f"{system}; torch runs models on {'a GPU' if has_gpu else 'the CPU'}"


def report_text(report: Report) -> RenderableType:
    """Return the report: whether requests can be run, and a row for each subject."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for each in report.checks:
        mark, style = _MARKS[each.state]
        advice = [Text(f"→ {clean(each.advice)}", "dim")] if each.advice else []
        details = Group(Text(clean(each.found)), *advice)
        table.add_row(Text(mark, style), Text(each.name, "bold", no_wrap=True), details)
    verdict = "Requests can be run." if report.ready else "Fix the checks marked ✗ to run requests."
    return Group(Text(verdict, "bold"), table)
