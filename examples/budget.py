"""A run that stops before a call that its budget cannot pay: python examples/budget.py

The hosted painter is a double of a provider, so that this runs without a key. With HF_TOKEN the same settings
hold for Inference Providers: JARVIS_BUDGET="money=0.05,tokens=20000,hosted_calls=10".
"""

import json

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from PIL import Image

from jarvis_agent import JarvisAgent
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

SEAS = [{"task": "text-to-image", "id": n, "dep": [n - 1], "args": {"text": f"sea {n}"}} for n in range(2)]

# This model replies from a script. A real one: model = "openai:gpt-5-mini"
model = ScriptedLLM({"plan": json.dumps(SEAS), "respond": "Here is the sea."})
painter = FakeBackend({"text-to-image": Image.new("RGB", (64, 64), "navy")}, "provider", local=False)
offer = fake_candidate("text-to-image", "org/painter", backend="provider", local=False, providers=("any",))


def price(name: str, stage: str, usage) -> float | None:
    """4 cents for a picture; the words of the model are free."""
    return 0.04 * usage.hosted_calls


if __name__ == "__main__":
    agent = JarvisAgent(
        model,
        sources=[FakeSource([offer])],
        backends=[painter],
        price=price,
        settings={"budget": {"money": 0.05}, "offline": False},
        checkpointer=InMemorySaver(),
        approve=lambda step: step.cost > 0,
    )
    thread = {"configurable": {"thread_id": "sea"}}
    agent.invoke("Paint the sea twice.", thread)
    (waiting,) = agent.graph.get_state(thread).interrupts
    print("asked:", waiting.value["action_requests"][0]["description"])
    run = agent.invoke(Command(resume=True), thread)
    for result in run.results:
        print(result.status, result.error or result.resources[0].path)
    spent = run.usage["execute"]
    print("spent:", spent.cost, "for", spent.hosted_calls, "hosted call")
