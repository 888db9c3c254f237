"""All benchmarks: python benchmarks comparison | scheduling | planning | selection | server | kills."""

from __future__ import annotations

import sys

import comparison
import kills
import planning
import scheduling
import selection
import server

PARTS = {
    "comparison": comparison.main,
    "scheduling": scheduling.main,
    "planning": planning.main,
    "selection": selection.main,
    "server": server.main,
    "kills": kills.main,
}

if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
    sys.exit(__doc__)
sys.exit(PARTS[sys.argv[1]](sys.argv[2:]))
