"""The agent in a LangGraph graph, as a node and as a subgraph: python examples/graph_node.py

A node is one step of the graph. A subgraph also streams its events, and the checkpointer of the graph keeps
its plan and each finished task.
"""

from pathlib import Path

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from jarvis_agent import JarvisAgent

CAT = Path(__file__).parent / "cat.jpg"


def run_as_node(agent: JarvisAgent) -> str:
    """The answer of a graph in which the agent is a node."""
    node = agent | (lambda run: {"messages": run.messages})
    graph = StateGraph(MessagesState).add_node("jarvis", node).add_edge(START, "jarvis").compile()
    state = graph.invoke({"messages": [("user", f"What animal is in {CAT}?")]})
    return state["messages"][-1].text


def run_as_subgraph(agent: JarvisAgent) -> list[str]:
    """The events of the agent in a graph in which it is a subgraph."""
    builder = StateGraph(MessagesState).add_node("jarvis", agent.graph).add_edge(START, "jarvis")
    graph = builder.compile(checkpointer=InMemorySaver())
    request = {"messages": [("user", f"Make a canny edge image of {CAT}.")]}
    thread = {"configurable": {"thread_id": "ada"}}
    stream = graph.stream(request, thread, stream_mode="custom", subgraphs=True)
    return [f"{event['kind']} {event['task']['task']}" for _, event in stream if event["task"]]


if __name__ == "__main__":
    # Without a key it plans by rules. A language model: JarvisAgent(model="openai:gpt-5-mini")
    with JarvisAgent() as agent:
        print("As a node:", run_as_node(agent))
        print("As a subgraph:", *run_as_subgraph(agent), sep="\n  ")
