"""What a lone tool does while the calling model waits for it: python examples/tool_progress.py

The tools of `hf_tools` report in LangGraph's custom stream. The first use of a model that is not on this
machine shows its download: "text-to-image: org/model: 1.2 of 3.4 GB downloaded".
"""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from jarvis_agent import hf_tools
from jarvis_agent.testing import ScriptedLLM

CAT = str(Path(__file__).parent / "cat.jpg")
CALL = {"name": "image-classification", "args": {"image": CAT}, "id": "1"}

# This model replies from a script. A real one: model = "openai:gpt-5-mini"
model = ScriptedLLM([AIMessage("", tool_calls=[CALL]), "It is a cat."])

if __name__ == "__main__":
    agent = create_agent(model, hf_tools(tasks=["image-classification"], files=[CAT]))
    request = {"messages": [("user", f"Which animal is in {CAT}?")]}
    for mode, piece in agent.stream(request, stream_mode=["custom", "values"]):
        if mode == "custom":
            print(piece["text"])
    print(piece["messages"][-1].text)
