"""The graph that langgraph.json names: an agent with everything from the environment.

    langgraph dev                                 # serves it, with a checkpointer of its own

It is made once, when the server starts: what a server calls for each request would load models anew. Requests
come over the network: they read what they bring along and what JARVIS_ALLOWED_DIRS allows, and no other file.
"""

from __future__ import annotations

from jarvis_agent.agent import JarvisAgent
from jarvis_agent.graph import make_graph

graph = make_graph(JarvisAgent().confined())
