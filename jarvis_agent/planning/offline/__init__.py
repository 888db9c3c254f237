"""Planning without a language model, by a small network of its own.

    OfflinePlanner().invoke("Describe cat.jpg and read the caption aloud")      # a Plan

A request becomes a row of tokens (`sequences`). The network writes a plan, action by action (`network`), of
which many point into the request. The planner leaves out what is unlikely or not offered (`planner`). Tools
that are not of the Hub perform its tasks, or are planned by their descriptions (`tools`).

The network learned from hand-written requests: see training/README.md.
"""

from jarvis_agent.planning.offline.planner import OfflinePlanner

__all__ = ["OfflinePlanner"]
