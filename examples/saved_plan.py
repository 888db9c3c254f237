"""A plan that is saved, and runs on other files without a language model: python examples/saved_plan.py

The command line does the same: jarvis "…" --plan-only --json > plan.json; jarvis run plan.json --file new.jpg
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis_agent import JarvisAgent, Plan

HERE = Path(__file__).parent

if __name__ == "__main__":
    # Without a key it plans by rules. A language model, which is asked once: model="openai:gpt-5-mini"
    with JarvisAgent() as agent, TemporaryDirectory() as folder:
        plan = agent.plan(f"What animal is in {HERE / 'cat.jpg'}?")
        file = Path(folder, "plan.json")
        file.write_text(plan.model_dump_json(), encoding="utf-8")

        saved = Plan.load(file.read_text(encoding="utf-8"))
        print("reads:", *(Path(name).name for name in saved.inputs))
        for name in ("cat.jpg", "street.jpg"):
            run = agent.invoke(saved.with_inputs([str(HERE / name)]))
            animal = run.results[0].output[0]["label"]
            print(name, "→", animal, f"({len(run.usage)} calls of a language model)")
