"""How often the offline planner plans what the requests of ControlLLM need.

    python benchmarks/controlllm.py tool2k.json

`eval_data/tool2k.json` of https://github.com/OpenGVLab/ControlLLM has 2,500 requests, each with the family of
tasks that it needs. A plan is right if it has a task of every family, and uses every file that the request
names. Every eighth request is planned; none is printed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan

_FIND = {"object-detection", "zero-shot-object-detection", "visual-question-answering"}
_MAPS = {name for name in TASKS if name.endswith("-control")} | {"depth-estimation", "keypoint-detection"}
_CUT = {"crop-image", "image-segmentation", "mask-generation", "seg-control"}
FAMILIES = {
    "count_object": _FIND,
    "image_detection": _FIND | _CUT,
    "image_classification": _FIND
    | {"image-classification", "zero-shot-image-classification", "image-to-text"},
    "image_segmentation": _CUT,
    "image_editing": _CUT | {"image-text-to-image", "image-to-image", "edit-image"},
    "image_QA": {"visual-question-answering", "image-text-to-text", "image-to-text"},
    "image_generation": {name for name in TASKS if name.endswith("to-image")},
    "image_processing": _MAPS,
    "video_classification": {"video-classification", "video-text-to-text"},
    "QA": {"text-generation", "question-answering", "table-question-answering", "summarization"},
}


def is_right(plan: Plan, families: list[str], request: str) -> bool:
    """Whether a plan has a task of every family, and uses every file."""
    used = json.dumps([task.args for task in plan.tasks], ensure_ascii=False)
    names = [name for name in mentions(request) if "." in name]
    has_families = all(FAMILIES[family] & {task.task for task in plan.tasks} for family in families)
    return has_families and all(json.dumps(name, ensure_ascii=False)[1:-1] in used for name in names)


def main() -> None:
    """Print the share of right plans by kind of request."""
    planner = OfflinePlanner(settings=Settings(offline=True))
    groups: dict[str, list[bool]] = defaultdict(list)
    for record in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))[::8]:
        families = record["type"].removeprefix("parallel_").split(",")
        kind = (
            "several files" if "parallel" in record["type"] else "compound" if len(families) > 1 else "single"
        )
        right = is_right(planner.invoke(record["instruction"]), families, record["instruction"])
        for group in ("all", kind, *(families if kind == "single" else ())):
            groups[group].append(right)
    for group, results in groups.items():
        print(f"{group:24}{len(results):6}{sum(results) / len(results):8.1%}")


if __name__ == "__main__":
    main()
