"""The agent as a tool of a supervisor, beside a tool of your own: python examples/supervisor.py"""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from jarvis_agent import JarvisAgent
from jarvis_agent.testing import ScriptedLLM

SPEECH = str(Path(__file__).parent / "speech.wav")


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def call(name: str, **args: object) -> AIMessage:
    """What a language model writes to call a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])


# This model replies from a script. A real one: supervising_model = "openai:gpt-5-mini"
supervising_model = ScriptedLLM(
    [
        call("jarvis", request="Transcribe the recording.", files=[SPEECH]),
        lambda messages: call("count_words", text=messages[-1].artifact.results[0].output["text"]),
        lambda messages: f"{messages[-1].text} words are spoken.",
    ]
)

if __name__ == "__main__":
    with JarvisAgent() as agent:
        supervisor = create_agent(supervising_model, [agent.as_tool(), count_words])
        state = supervisor.invoke({"messages": [("user", f"How many words are spoken in {SPEECH}?")]})
    for message in state["messages"]:
        print(f"{message.type}: {message.text or message.tool_calls}")
    run = state["messages"][2].artifact  # the content of the tool's message is run.answer
    print("The recording was transcribed by", run.results[0].model)
