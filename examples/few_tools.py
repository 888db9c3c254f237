"""All tasks of the Hub as tools, of which the model sees the few that fit: python examples/few_tools.py"""

import json
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import LLMToolSelectorMiddleware
from langchain_core.messages import AIMessage

from jarvis_agent import hf_tools
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools import hf_tools_middleware

PAGE = str(Path(__file__).parent / "page.png")
CALL = {"name": "image-to-text", "args": {"image": PAGE, "text": "read"}, "id": "1"}

# These models reply from a script. Real ones: model = "openai:gpt-5-mini", small = "openai:gpt-5-nano"
CHOICE = {"name": "ToolSelectionResponse", "args": {"tools": ["summarization", "image-to-text"]}, "id": "0"}
small = ScriptedLLM([AIMessage("", tool_calls=[CHOICE])] * 2)
model = ScriptedLLM(
    [AIMessage("", tool_calls=[CALL]), lambda messages: f"The page says: {messages[-1].text[:60]}", "Hello!"]
)


def schemas() -> list[dict]:
    """The tools that the last call of the model was offered."""
    return model.calls[-1].kwargs["tools"]


if __name__ == "__main__":
    tools = hf_tools_middleware(files=[PAGE], available_only=False)
    selector = LLMToolSelectorMiddleware(model=small, max_tools=8)
    agent = create_agent(model, middleware=[tools, selector])
    state = agent.invoke({"messages": f"Read the text in {PAGE}."})
    few = schemas()
    print("offered:", *(tool["function"]["name"] for tool in few))
    print(state["messages"][-1].text)

    create_agent(model, hf_tools(available_only=False)).invoke({"messages": "Hello!"})
    tokens = [count_tokens(json.dumps(each)) for each in (few, schemas())]
    print("tokens of tool schemas: {} instead of {}".format(*tokens))
