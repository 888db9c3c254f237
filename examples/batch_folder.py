"""The same request for every file of a folder: python examples/batch_folder.py [FOLDER]"""

import sys
from pathlib import Path

from jarvis_agent import JarvisAgent

folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent
pictures = sorted(folder.glob("*.jpg"))
requests = [{"input": "Classify this image.", "files": [picture]} for picture in pictures]

if __name__ == "__main__":
    # Without a key it plans by rules. A language model: JarvisAgent(model="openai:gpt-5-mini")
    with JarvisAgent() as agent:
        runs = agent.batch(requests, {"max_concurrency": 4}, return_exceptions=True)
    for picture, run in zip(pictures, runs, strict=True):
        if isinstance(run, Exception):
            print(f"{picture.name}: {run}")
            continue
        best = run.results[0].output[0]
        print(f"{picture.name}: {best['label']} ({best['score']:.0%})")
