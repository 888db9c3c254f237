"""The time of imports and of `jarvis --help`, beside that of the part of langchain-core that they need."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

from figures import Figure

HEAVY = ("torch", "transformers", "diffusers", "langgraph", "fastapi")
AGENT = "from jarvis_agent import JarvisAgent"
HELP = "import sys; from jarvis_agent.interfaces.cli.app import main; sys.argv[1:] = ['--help']; main()"


def process_seconds(code: str, runs: int = 7) -> float:
    """The least wall time of a fresh Python that runs `code`, less that of one that runs nothing."""

    def once(source: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)
        return perf_counter() - began

    return min(once(code) for _ in range(runs)) - min(once("pass") for _ in range(runs))


def heavy_imports() -> int:
    """How many heavy libraries importing the agent loads."""
    loaded = f"import sys; sys.exit(sum(m in sys.modules for m in {HEAVY!r}))"
    return subprocess.run([sys.executable, "-c", f"{AGENT}; {loaded}"], check=False).returncode


async def figures() -> list[Figure]:
    """The times, and how many heavy libraries are imported."""
    heavy = heavy_imports()
    base = process_seconds("from langchain_core.tools import BaseTool")
    return [
        Figure("import jarvis_agent", process_seconds("import jarvis_agent"), 0.35, "s"),
        Figure("jarvis --help", process_seconds(HELP), 0.35, "s"),
        Figure(f"{AGENT}, over importing langchain-core's tools", process_seconds(AGENT) / base, 3, "×"),
        Figure("heavy libraries that JarvisAgent imports", heavy, 0),
    ]
