"""Planning without a language model, by a small network of its own.

    OfflinePlanner().invoke("Describe cat.jpg and read the caption aloud")      # a Plan

A request becomes a row of tokens, in which files and earlier answers are tokens of their own (`sequences`).
The network reads it and writes a plan, action by action (`network`): a task type, an argument, and a value,
often a pointer into the request. Only actions that fit are possible: offered task types, files of the right
kind, results of earlier tasks. The planner (`planner`) leaves out what is unlikely or not offered.
Tools that are not of the Hub perform its tasks, or are planned by their descriptions (`tools`).

The network learned from hand-written requests: see training/README.md.
"""

from jarvis_agent.planning.offline.planner import OfflinePlanner

__all__ = ["OfflinePlanner"]
