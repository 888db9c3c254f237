"""Seeds: repeated pictures differ, and the same requests give the same pictures again."""

from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from PIL import Image
from small_agents import hub_tools, plan, small_agent

from jarvis_agent import Run
from jarvis_agent.backends.base import Call
from jarvis_agent.testing import ScriptedLLM

DRAW, CAT = "text-to-image", {"text": "a cat"}
THREE, ONE = plan(*[(DRAW, [], CAT)] * 3), plan((DRAW, [], CAT))


def paint(call: Call) -> Image.Image:
    return Image.frombytes("RGB", (2, 1), call.settings.seed.to_bytes(6, "big"))


def seeds(run: Run) -> list[int]:
    """The seeds of the attempts, which are those of the pictures."""
    found = [attempt.seed or 0 for result in run.results for attempt in result.attempts]
    pictures = [Image.open(file.path) for result in run.results for file in result.resources if file.path]
    assert [int.from_bytes(picture.tobytes(), "big") for picture in pictures] == found
    return found


def draw(home: Path, seed: int) -> list[int]:
    """The seeds of three pictures, and of another one in the next turn."""
    agent, _, _ = small_agent([THREE, ONE], {DRAW: paint}, settings={"seed": seed})
    config = {"configurable": {"thread_id": "chat"}}
    with agent:
        first = agent.invoke("Draw three pictures of a cat", config)
        return [*seeds(first), *seeds(agent.invoke("Another one", config))]


def test_each_picture_of_a_chat_is_another_and_the_same_in_another_process(home: Path) -> None:
    first = draw(home, 7)
    assert first[0] == 7
    assert len({*first}) == 4
    assert draw(home, 7) == first
    assert set(first).isdisjoint(draw(home, 70))


def test_the_pictures_of_a_long_chat_differ_though_its_first_turns_are_forgotten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.agent.memory.MAX_TURNS", 2)
    agent, _, _ = small_agent([ONE] * 6, {DRAW: paint})
    with agent:
        drawn = [agent.invoke("Another one", {"configurable": {"thread_id": "chat"}}) for _ in range(6)]
    assert len({seed for run in drawn for seed in seeds(run)}) == 6


async def test_the_pictures_of_a_long_chat_in_messages_alone_differ(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.agent.graph.MAX_TURNS", 2)
    agent, _, _ = small_agent([ONE] * 6, {DRAW: paint})
    messages: list[BaseMessage] = []
    drawn: list[Run] = []
    async with agent:
        for _ in range(6):
            state = await agent.graph.ainvoke({"messages": [*messages, HumanMessage("Another one")]})
            messages = [*messages, HumanMessage("Another one"), AIMessage("Here it is.")]
            drawn.append(Run.model_validate(state["run"]))
    assert len({seed for run in drawn for seed in seeds(run)}) == 6


@pytest.mark.parametrize("ids", [("1", "2", "3"), ("1", "2", "1")])
def test_a_tool_that_is_called_again_draws_another_picture(home: Path, ids: tuple[str, ...]) -> None:
    calls = [ToolCall(name=DRAW, args=CAT, id=one) for one in ids]
    llm = ScriptedLLM([AIMessage("", tool_calls=calls[:2]), AIMessage("", tool_calls=calls[2:]), "Done."])
    tools = hub_tools(DRAW, experts={DRAW: paint})
    messages = create_agent(llm, tools).invoke({"messages": [("user", "Draw three cats")]})["messages"]
    made = [one.artifact["attempts"][0]["seed"] for one in messages if isinstance(one, ToolMessage)]
    assert made == [0, 1, 2]


def test_a_tool_that_is_called_outside_of_a_chat_draws_another_picture_each_time(home: Path) -> None:
    (tool,) = hub_tools(DRAW, experts={DRAW: paint})
    calls: list[ToolCall] = [
        ToolCall(name=DRAW, args=CAT, id=str(number), type="tool_call") for number in range(3)
    ]
    messages = [*tool.batch(calls), tool.invoke(calls[0])]
    made = [message.artifact["attempts"][0]["seed"] for message in messages]
    assert sorted(made) == [0, 1, 2, 3]
