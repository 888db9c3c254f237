"""The scripts in examples/ run as they are, offline and without a key, and print what they are to show."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
OUTPUT = {
    "graph_node": (
        r"As a node: It is probably a tiger cat .*"
        r"As a subgraph:\n  task canny-control\n  selected canny-control\n  started canny-control\n"
        r"  finished canny-control"
    ),
    "supervisor": (
        r"human: How many words .*ai: .*'jarvis'.*tool: .*And Mr\. John .*ai: .*'count_words'.*tool: 22\n"
        r"ai: 22 words are spoken\.\nThe recording was transcribed by Systran/faster-whisper"
    ),
    "tools_in_a_chat": (
        r"edge image of \S+cat\.jpg\. → Here are its edges\. \S+/canny-control\.png \(451, 300\)\n"
        r"Now .* → Here is a scribble of them\. \S+/scribble-control\.png \(451, 300\)"
    ),
    "see_results": r"^I see: text, image$",
    "tool_progress": (
        r"image-classification: selecting\nimage-classification: running\n"
        r"(?:image-classification: \S+: loading\n)?It is a cat\.$"
    ),
    "approve_plan": (
        r"planned: canny-control with opencv/canny, here\nrun: scribble-control ok\n"
        r".*/0-scribble-control\.png"
    ),
    "few_tools": (
        r"^offered: summarization image-to-text\nThe page says: It was the best of times, .*"
        r"tokens of tool schemas: \d+ instead of \d+\n$"
    ),
    "budget": (
        r"asked: text-to-image with org/painter, hosted, for 0\.04\n"
        r"ok .*\nfailed org/painter failed: the run's budget is money=0\.05, .*JARVIS_BUDGET.*\n"
        r"spent: 0\.04 for 1 hosted call\n"
    ),
    "saved_plan": (
        r"^reads: cat\.jpg\ncat\.jpg → tiger cat \(0 calls .*\)\nstreet\.jpg → malamute \(0 calls "
    ),
    "recommend_model": (
        r"tables in this report\? microsoft/table-transformer-detection: It finds .*"
        r"helmet\? keremberke/yolov8m-hard-hat-detection: It knows"
    ),
    "two_models": (
        r"plan: 1 call, \d+ tokens in, \d+ out\nrespond: 1 call, .*"
        r"I drew its edges.*/1-scribble-control\.png"
    ),
    "batch_folder": (
        r"astronaut\.jpg: .+ \(\d+%\)\ncat\.jpg: tiger cat \(\d+%\)\nstreet\.jpg: malamute \(\d+%\)"
    ),
}
"""What each script prints, as a pattern over lines."""


@pytest.mark.starter
@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUT)
def test_an_example_prints_what_it_is_to_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(EXAMPLES / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script])
    runpy.run_path(script, run_name="__main__")
    printed, complaints = capsys.readouterr()
    assert re.search(OUTPUT[name], printed, re.DOTALL), printed
    assert complaints == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"outputs"}


def test_every_script_is_short_listed_and_says_where_a_real_model_goes() -> None:
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    listed = re.findall(r"^\| `(\w+)\.py` \|", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(scripts)
    assert scripts.keys() - {"mcp_server"} == OUTPUT.keys()
    for name in OUTPUT:
        assert scripts[name].count("\n") <= 60, name
        assert f"python examples/{name}.py" in scripts[name]
        assert re.search(r"^ *# .*openai:gpt-5", scripts[name], re.MULTILINE), name
