"""All benchmarks: python benchmarks comparison | kills | planning | scheduling | selection | server."""

import sys
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # It has PostgreSQL and a small language model.

import comparison
import kills
import planning
import scheduling
import selection
import server

sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True, rich_markup_mode=None)
for part in (comparison, kills, planning, scheduling, selection, server):
    app.command(part.__name__, help=part.__doc__)(part.main)
app.command("serve-app", hidden=True)(server.serve)
app()
