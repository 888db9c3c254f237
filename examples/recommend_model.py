"""`selection_chain` alone, as a recommender of models: python examples/recommend_model.py

The candidates are yours, as dicts. The chain shows them to a language model and checks that it names one.
"""

from jarvis_agent import selection_chain
from jarvis_agent.testing import ScriptedLLM

CATALOGUE = [
    {
        "id": "facebook/detr-resnet-50",
        "task": "object-detection",
        "description": "Detects the 80 classes of COCO: people, vehicles, animals, furniture.",
        "license": "apache-2.0",
    },
    {
        "id": "keremberke/yolov8m-hard-hat-detection",
        "task": "object-detection",
        "description": "Detects whether people wear a hard hat.",
    },
    {
        "id": "microsoft/table-transformer-detection",
        "task": "object-detection",
        "description": "Finds tables in pages of documents.",
        "license": "mit",
    },
]

# This model replies from a script. A real one: model = "openai:gpt-5-mini"
model = ScriptedLLM(
    [
        '{"id": "microsoft/table-transformer-detection", "reason": "It finds tables in pages."}',
        '{"id": "keremberke/yolov8m-hard-hat-detection", "reason": "It knows hard hats."}',
    ]
)

if __name__ == "__main__":
    recommend = selection_chain(model).with_retry(stop_after_attempt=2)
    task = {"task": "object-detection", "id": 0, "args": {"image": "photo.jpg"}}
    for request in ("Where are the tables in this report?", "Does everyone on the site wear a helmet?"):
        choice = recommend.invoke({"input": request, "task": task, "candidates": CATALOGUE})
        print(f"{request} {choice.id}: {choice.reason}")
