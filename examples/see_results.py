"""A calling model that sees the picture which it ordered: python examples/see_results.py

With `content="blocks"`, a tool's result has the files as content blocks. For several models,
`hf_tools_middleware` leaves out what a model does not take. OpenAI's models take images in tool messages
through the Responses API.
"""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from jarvis_agent import hf_tools
from jarvis_agent.testing import ScriptedLLM

CAT = str(Path(__file__).parent / "cat.jpg")
CALL = {"name": "canny-control", "args": {"image": CAT}, "id": "1"}


def look(messages: list) -> str:
    """What a model with eyes would do: look at the blocks of the tool's message."""
    return "I see: " + ", ".join(block["type"] for block in messages[-1].content_blocks)


# This model replies from a script. A real one: init_chat_model("openai:gpt-5-mini", use_responses_api=True)
model = ScriptedLLM(
    [AIMessage("", tool_calls=[CALL]), look], profile={"image_inputs": True, "image_tool_message": True}
)

if __name__ == "__main__":
    tools = hf_tools(model, tasks=["canny-control"], files=[CAT], content="blocks")
    state = create_agent(model, tools).invoke({"messages": "Make an edge image and look at it."})
    print(state["messages"][-1].text)
