"""A plan that is approved, and edited, before it runs: python examples/approve_plan.py [URL]

`langgraph dev` (pip install "langgraph-cli[inmem]") serves the graphs of langgraph.json and opens them in
Studio. There "jarvis-approve" stops with its plan in the format of HumanInTheLoopMiddleware, which Studio and
Agent Chat UI show. This script decides in the same way, with the server at URL (http://127.0.0.1:2024) or
without one.
"""

import sys
import uuid
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command

from jarvis_agent import JarvisAgent

CAT = Path(__file__).parent / "cat.jpg"


def connect() -> Any:
    """The graph on the server, or the same one here."""
    if sys.argv[1:]:
        return RemoteGraph("jarvis-approve", url=sys.argv[1])
    # Without a key it plans by rules. A language model: JarvisAgent(model="openai:gpt-5-mini", …)
    return JarvisAgent(checkpointer=InMemorySaver(), approve=True).graph


if __name__ == "__main__":
    graph, thread = connect(), {"configurable": {"thread_id": str(uuid.uuid4())}}
    graph.invoke({"input": "Make a canny edge image.", "files": [str(CAT)]}, thread)
    (waiting,) = graph.get_state(thread).interrupts
    (action,) = waiting.value["action_requests"]
    print("planned:", action["description"])

    edited = {"name": "scribble-control", "args": action["args"]}
    decisions = [{"type": "edit", "edited_action": edited}]  # or approve, reject, respond
    state = graph.invoke(Command(resume={"decisions": decisions}), thread)
    for result in state["run"]["results"]:
        print("run:", result["task"]["task"], result["status"])
    print(state["run"]["answer"])
