"""`hf_tools` in `create_agent`, with the files of the conversation: python examples/tools_in_a_chat.py

A set of tools reads the files that it was given and those that it made, so that a later message can refer to
an earlier result. The files belong to the thread, so that one set serves all conversations.
"""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from jarvis_agent import Resource, hf_tools
from jarvis_agent.testing import ScriptedLLM

CAT = str(Path(__file__).parent / "cat.jpg")


def call(name: str, **args: object) -> AIMessage:
    """What a language model writes to call a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])


# This model replies from a script. A real one: model = "openai:gpt-5-mini"
model = ScriptedLLM(
    [
        call("canny-control", image=CAT),
        "Here are its edges.",
        lambda messages: call("scribble-control", image=messages[-3].text.removeprefix("image: ")),
        "Here is a scribble of them.",
    ]
)

if __name__ == "__main__":
    tools = hf_tools(tasks=["canny-control", "scribble-control"], files=[CAT])
    chat = create_agent(model, tools, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "ada"}}
    for request in (f"Make an edge image of {CAT}.", "Now make a scribble of that."):
        state = chat.invoke({"messages": [("user", request)]}, thread)
        called, answer = state["messages"][-2:]
        image = Resource.model_validate(called.artifact["resources"][0])
        print(request, "→", answer.text, image.path, image.to_pil().size)
