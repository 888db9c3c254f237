"""All benchmarks: python benchmarks scheduling | planning | selection | server | kills [--help]"""

from __future__ import annotations

import sys

import kills
import planning
import scheduling
import selection
import server

PARTS = {
    "scheduling": scheduling.main,
    "planning": planning.main,
    "selection": selection.main,
    "server": server.main,
    "kills": kills.main,
}

if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
    sys.exit(__doc__)
sys.exit(PARTS[sys.argv[1]](sys.argv[2:]))
