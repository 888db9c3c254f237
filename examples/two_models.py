"""A plan by one language model, and the choices and the answer by another: python examples/two_models.py

A large model may plan and a small one do the rest, or a model on your own machine read the results.
"""

import json
from pathlib import Path

from jarvis_agent import JarvisAgent, planning_chain
from jarvis_agent.testing import ScriptedLLM

CAT = str(Path(__file__).parent / "cat.jpg")
PLAN = [
    {"task": "canny-control", "id": 0, "dep": [-1], "args": {"image": CAT}},
    {"task": "scribble-control", "id": 1, "dep": [0], "args": {"image": "<resource>-0"}},
]

# These models reply from a script. Real ones: "openai:gpt-5" and "openai:gpt-5-mini"
planning_model = ScriptedLLM({"plan": json.dumps(PLAN)})
answering_model = ScriptedLLM({"respond": "I drew its edges, and a scribble of them."})

if __name__ == "__main__":
    with JarvisAgent(model=answering_model, planner=planning_chain(planning_model)) as agent:
        run = agent.invoke(f"Make a canny edge image of {CAT} and a scribble of that.")
    for stage, usage in run.usage.items():
        print(f"{stage}: {usage.calls} call, {usage.input_tokens} tokens in, {usage.output_tokens} out")
    print(run.answer)
