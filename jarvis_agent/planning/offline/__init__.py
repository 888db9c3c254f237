"""Planning without a language model.

OfflinePlanner().invoke("Describe cat.jpg and read the caption aloud")      # a Plan
split_request("Describe cat.jpg, then translate the caption")               # its steps
"""

from jarvis_agent.planning.offline.planner import OfflinePlanner, split_request

__all__ = ["OfflinePlanner", "split_request"]
