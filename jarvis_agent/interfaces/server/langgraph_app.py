"""The graphs that langgraph.json names: an agent configured by the environment.

    langgraph dev                                 # serves them, with a checkpointer of its own

"jarvis" runs each plan at once; "jarvis-approve" stops at an interrupt that shows the plan.

Both share one agent, created when the server starts, and so its loaded models. Requests are untrusted: they
can read their attachments and JARVIS_ALLOWED_DIRS, and no other file.
"""

from __future__ import annotations

from jarvis_agent.agent.agent import JarvisAgent

_agent = JarvisAgent()
_agent = _agent.restricted(*_agent.settings.allowed_dirs)

graph = _agent.graph
approving = _agent.with_checkpointer(None, approve=True).graph
