"""No response of a server holds a path, an address or a setting of it: only URLs, and names of uploads."""

import errno
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from served import ANSWER, CAT, Served, body_of, plan_for, routes, serving
from waiting import wait_until

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.errors import BadInputError, ExpertError
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

PLACE = str(Path(sys.prefix, "labels.txt"))
FAILURES = {
    "of a library": RuntimeError(f"{PLACE} is not what was expected at 10.1.2.3"),
    "of the system": OSError(errno.EACCES, f"not for you: {PLACE}", PLACE),
    "with the words of a library": BadInputError(
        "the labels are missing", detail=PLACE, advice="set JARVIS_MODELS_FILE"
    ),
    "around another": ExpertError("it failed", detail=FileNotFoundError(errno.ENOENT, "gone", PLACE)),
}


def fails(error: Exception) -> Callable[..., Any]:
    def expert(*_: Any) -> Any:
        raise error

    return expert


def agent_with(folder: Path, error: Exception) -> JarvisAgent:
    """An agent whose first model fails, with weights in a private folder and at a private address."""
    (weights := folder / "weights" / "captioner").mkdir(parents=True)
    places = {"path": weights, "metadata": {"base_url": "http://10.1.2.3/v1"}}
    tasks = ("image-to-text", "canny-control")
    return JarvisAgent(
        ScriptedLLM({"plan": "[]", "respond": ANSWER, "chat": "Good morning."}),
        sources=[FakeSource([fake_candidate(task, **places) for task in tasks])],
        backends=[FakeBackend({"canny-control": Image.new("L", (8, 8)), "image-to-text": fails(error)})],
        settings=Settings(output_dir=folder / "out", allowed_dirs=(folder,), max_file_bytes=100_000),
    )


def finished_run(served: Served, body: dict[str, Any]) -> str:
    """The id of a run of the server that is over."""
    run: str = served.client.post("/runs", json=body).json()["id"]
    wait_until(lambda: served.get(f"/runs/{run}").json()["status"] not in ("queued", "running"))
    return run


def responses(served: Served, files: list[str]) -> Iterator[tuple[str, str]]:
    """What each route says of these files."""
    run = finished_run(served, body_of("/runs", files[0], files[:1]))
    for method, path in routes():
        for task in ("canny-control", "image-to-text") if "{task}" in path else ("",):
            url = path.replace("{task}", task).replace("{id}", run).replace("{run}", run)
            if method == "get":
                yield path, served.get(url.replace("{name}", "none.png")).text
                continue
            for file in files:
                served.script["plan"] = plan_for(file)
                yield path, served.client.request(method, url, json=body_of(path, file, [file])).text
            sent = {"file": ("cat.jpg", CAT.read_bytes())}
            yield path, served.client.request(method, url, files=sent, data={"model": "jarvis"}).text


@pytest.mark.parametrize("failure", FAILURES)
def test_no_response_of_any_route_holds_what_is_private(tmp_path: Path, failure: str) -> None:
    (picture := tmp_path / "cat.jpg").write_bytes(CAT.read_bytes())
    with serving(agent_with(tmp_path, FAILURES[failure])) as served:
        damaged = served.upload(CAT.read_bytes()[:1500]).json()["name"]
        uploads = [served.upload().json()["name"], damaged]
        made = served.client.post(
            "/tools/canny-control/invoke", json={"input": {"image": uploads[0]}}
        ).json()["output"]["artifact"]["resources"][0]["path"]
        assert served.get(made).headers["content-type"] == "image/png"
        refused = (b"x" * 200_000, b"\x89PNG broken")
        texts = [("/files", served.upload(content).text) for content in refused]
        others = [damaged, made, "none.jpg", str(picture), str(tmp_path)]  # with which no model is called
        texts += responses(served, [uploads[0], *(others if failure == "of a library" else ())])
    private = [str(tmp_path / "out"), str(Path.home()), str(Path.cwd()), sys.prefix, "10.1.2.3", "JARVIS_"]
    private += (f"/uploads/local/{name}" for name in uploads)
    private.append(f"/served/local{made.removeprefix('/outputs')}")
    found = [
        (word, route, text[max(0, text.find(word) - 200) : text.find(word) + 200])
        for route, text in texts
        for word in private
        if word in text
    ]
    assert found == []


def test_a_directory_that_is_a_link_has_two_paths(tmp_path: Path) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    real.mkdir()
    link.symlink_to(real)
    names = PublicNames({link: "/outputs/"})
    for root in (link, real):
        assert names.of({"path": f"{root}/8f0c/0-a.png"}) == {"path": "/outputs/8f0c/0-a.png"}
