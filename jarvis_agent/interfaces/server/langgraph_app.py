"""The graphs that langgraph.json names: an agent with everything from the environment.

    langgraph dev                                 # serves them, with a checkpointer of its own

"jarvis" runs each plan at once; "jarvis-approve" stops at an interrupt that shows the plan, as
`make_graph(…, approve=True)`.

The agent is made once, when the server starts, and both share it: what a server calls for each request would
load models anew. Requests come over the network: they read what they bring along and what
JARVIS_ALLOWED_DIRS allows, and no other file.
"""

from __future__ import annotations

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.agent.graph import make_graph

_agent = JarvisAgent().confined()

graph = make_graph(_agent)
approving = make_graph(_agent, approve=True)
