"""The web page, used in headless Chromium as a visitor does."""

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Tab, browser_tab, chromium, serving_page
from PIL import Image
from playwright.sync_api import Browser, expect
from served import ANSWER, CAT, agent_of, plan_for, script_of
from small_agents import Row, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.selection.store import Experience, SelectionStore

pytestmark = pytest.mark.slow
PRICES = {"table": "prices.csv"}
FACES = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
PAINTED_OVER_RUN = """() => {
    const side = document.querySelector("#side"), run = document.querySelector("#run-plan"), over = [];
    for (let y = 0; y < 300; y += 5) {
        side.scrollTop = y;
        const { left, top } = run.getBoundingClientRect();
        const painted = document.elementFromPoint(left + 30, top + 5);
        if (!run.contains(painted)) over.push(painted.outerHTML);
    }
    return over;
}"""
DROP = """target => {
    const data = new DataTransfer();
    data.items.add(new File(["rooms\\n3\\n"], "prices.csv", {type: "text/csv"}));
    const event = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
    return target.dispatchEvent(event);
}"""
ASTRONAUT = CAT.with_name("astronaut.jpg")

if CHROMIUM is None:
    pytest.skip("needs Chromium (Debian: apt install chromium)", allow_module_level=True)


@dataclass
class Stage:
    """A page with the replies of its language model by stage; its expert for images waits for `go`."""

    url: str
    browser: Browser
    outputs: Path
    script: dict[str, Any]
    calls: list[Call]
    go: threading.Event
    stopped: threading.Event


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    outputs = tmp_path_factory.mktemp("ui") / "outputs"
    go, stopped = threading.Event(), threading.Event()

    async def describe(call: Call) -> Any:
        try:
            while not go.is_set():  # noqa: ASYNC110, the event is set in another thread
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return [{"generated_text": "a tabby cat"}]

    results = {
        "image-to-text": describe,
        "image-classification": [{"label": "tabby", "score": 0.9}],
        "canny-control": Image.linear_gradient("L"),
        "text-to-speech": {"audio": np.zeros(16_000, dtype=np.float32), "sampling_rate": 16_000},
        "tabular-regression": {"predictions": [150]},
        "text-to-3d": {"vertices": [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], "faces": FACES},
    }
    agent = agent_of(outputs, results)
    with serving_page([agent]) as url, chromium() as browser:
        calls = agent.stages.registry.backends["fake"].calls  # type: ignore[attr-defined]
        yield Stage(url, browser, outputs, script_of(agent), calls, go, stopped)


@pytest.fixture
def stage(played: Stage) -> Stage:
    played.go.set()
    played.stopped.clear()
    played.calls.clear()
    played.script["plan"] = plan_for("cat.jpg")
    return played


@pytest.fixture
def tab(stage: Stage) -> Iterator[Tab]:
    with browser_tab(stage.browser, stage.url) as tab:
        yield tab
        # "BJS" is the viewer of 3D objects, which needs a GPU.
        assert [error for error in tab.errors if not error.startswith("BJS")] == []
        assert tab.foreign == []


def test_no_events_overlap_in_the_queue_of_gradio(stage: Stage) -> None:
    with browser_tab(stage.browser, stage.url, apart=True) as tab:
        queued: list[str] = []
        tab.page.on("request", lambda sent: queued.append(sent.url) if "/queue/join" in sent.url else None)
        tab.reload()
        assert len(queued) == 1  # beside another one, its result can be lost, and the page stays empty


def test_a_photo_is_asked_about_and_the_plan_and_the_picture_appear(stage: Stage, tab: Tab) -> None:
    stage.go.clear()
    expect(tab.plan).to_be_hidden()
    tab.ask("What animal is this?", CAT)
    expect(tab.task(0)).to_contain_text("Image to text")
    expect(tab.task(0)).to_contain_text("running")
    expect(tab.task(1)).to_contain_text("done")
    stage.go.set()
    expect(tab.task(0)).to_contain_text("done")
    tab.wait_until_idle()
    expect(tab.chat).to_contain_text(ANSWER)
    assert tab.pictures.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [256, 256]

    tab.task(0).click()
    details = tab.details
    expect(details).to_have_count(1)
    expect(details).to_contain_text("cat.jpg")
    expect(details).to_contain_text("fake/image-to-text")
    expect(details).to_contain_text("a tabby cat")
    tab.task(1).click()
    expect(details.get_by_role("img", name="1-canny-control.png")).to_be_visible()


def test_an_example_is_run_and_its_answer_gets_a_thumb(selection_file: Path, stage: Stage, tab: Tab) -> None:
    examples = tab.chat.locator(".examples button")
    expect(examples).to_have_text([re.compile("What animal"), re.compile("Read this out")])  # as can run here
    tab.chat.get_by_role("button", name="What animal is in this picture").click()
    expect(tab.chat).to_contain_text(ANSWER)  # before, nothing is there to be rated
    tab.wait_until_idle()
    tab.chat.get_by_role("button", name="dislike").last.click()
    store = SelectionStore(selection_file)
    for _ in range(100):
        known = store.experience("image-to-text").get("fake/image-to-text", Experience())
        if known.bad:
            break
        tab.page.wait_for_timeout(100)
    assert (known.good, known.bad) == (0, 1)


def test_a_file_is_dropped_on_the_page_and_a_result_of_each_kind_is_shown(stage: Stage, tab: Tab) -> None:
    spoken, shaped = {"text": "a cat"}, {"text": "a cat"}
    stage.script["plan"] = plan(
        ("text-to-speech", [], spoken), ("text-to-3d", [], shaped), ("tabular-regression", [], PRICES)
    )
    assert tab.page.locator("#head").evaluate(DROP) is False  # the browser does not open the file itself
    expect(tab.page.locator("#box .thumbnail-item")).to_have_count(1)
    tab.ask("Say it, model it, and tell the prices.")
    tab.wait_until_idle()
    answer = tab.chat.locator(".bot-row")
    expect(answer.locator("audio")).to_be_visible()
    assert answer.locator("audio").evaluate("sound => sound.error") is None
    expect(answer.get_by_test_id("model3d")).to_be_attached()
    expect(answer.get_by_role("cell", name="150")).to_be_visible()
    for name in ("0-text-to-speech.wav", "1-text-to-3d.glb", "2-tabular-regression.csv"):
        link = answer.get_by_role("link", name=name).last.evaluate("link => link.href")
        assert tab.page.request.get(link).status == 200


def test_an_error_is_explained_and_the_request_stays(stage: Stage, tab: Tab, tmp_path: Path) -> None:
    broken = tmp_path / "photo.jpg"
    broken.write_bytes(b"")
    tab.ask("What animal is this?", broken)
    expect(tab.chat).to_contain_text("This did not work")
    expect(tab.chat).to_contain_text("photo.jpg")
    expect(tab.page.locator("#side")).to_be_hidden()
    expect(tab.box).to_have_value("What animal is this?")
    assert str(stage.outputs) not in tab.page.content()
    tab.page.locator("#box .delete-button").first.click()
    tab.ask("What animal is this?", CAT)
    tab.wait_until_idle()
    expect(tab.chat).to_contain_text(ANSWER)


def test_stop_cancels_the_run(stage: Stage, tab: Tab) -> None:
    stage.go.clear()
    tab.ask("What animal is this?", CAT)
    expect(tab.task(0)).to_contain_text("running")
    tab.page.locator("#box .stop-button").click()
    tab.wait_until_idle()
    expect(tab.task(0)).to_contain_text("stopped")
    expect(tab.chat).to_contain_text("Stopped.")
    assert stage.stopped.wait(120)
    stage.go.set()
    tab.ask("What animal is this?", CAT)
    tab.wait_until_idle()
    expect(tab.chat).to_contain_text(ANSWER)


def test_a_chat_goes_on_after_the_page_is_loaded_again(stage: Stage, tab: Tab) -> None:
    tab.ask("What animal is this?", CAT)
    tab.wait_until_idle()
    tab.reload()
    expect(tab.chat).to_contain_text(ANSWER)
    expect(tab.pictures).to_have_count(1)
    expect(tab.task(1)).to_contain_text("done")

    stage.go.clear()
    tab.ask("And what is it doing?", CAT)
    expect(tab.task(0)).to_contain_text("running")
    tab.reload()
    expect(tab.task(0)).to_contain_text("stopped")
    assert stage.stopped.wait(120)

    stage.go.set()
    tab.ask_first()
    stage.script["plan"] = plan_for("1-canny-control.png")
    tab.ask("And what is in the outline?")
    expect(tab.page.locator("#run-plan")).to_be_visible()
    tab.reload()
    tab.page.locator("#run-plan").click()
    expect(tab.task(0)).to_contain_text("done")
    expect(tab.chat.get_by_text(ANSWER)).to_have_count(2)  # a run at work would draw its chat again
    tab.wait_until_idle()
    tab.open_menu()
    tab.page.get_by_role("button", name="New chat").click()
    expect(tab.requests).to_have_count(0)
    tab.reload()
    expect(tab.page.get_by_text("What shall I do?")).to_be_visible()
    tab.open_menu()
    tab.page.locator("#chats label", has_text="What animal is this?").click()
    expect(tab.chat).to_contain_text(ANSWER)
    expect(tab.requests).to_have_count(3)


def test_a_request_is_edited_and_asked_again(stage: Stage, tab: Tab) -> None:
    tab.ask("What animal is <this>?", CAT)
    tab.wait_until_idle()
    stage.go.clear()
    tab.chat.get_by_role("button", name="Edit").click()
    tab.chat.locator("textarea").fill("What colour has it?")
    tab.chat.get_by_role("button", name="Submit").click()
    expect(tab.task(0)).to_contain_text("running")
    stage.go.set()
    tab.wait_until_idle()
    expect(tab.requests).to_have_text(["What colour has it?"])
    expect(tab.chat).to_contain_text(ANSWER)
    assert [call.inputs["image"].name for call in stage.calls] == ["cat.jpg"] * 4
    stage.go.clear()
    tab.chat.get_by_role("button", name="Edit").click()
    tab.chat.get_by_role("button", name="Submit").click()  # as it is
    expect(tab.task(0)).to_contain_text("running")
    stage.go.set()
    tab.wait_until_idle()
    expect(tab.requests).to_have_text(["What colour has it?"])
    assert len(stage.calls) == 6


def test_a_task_is_run_again_with_another_model(stage: Stage, tmp_path: Path) -> None:
    agent, _, backend = small_agent(models=("one", "two"), settings={"output_dir": tmp_path})
    picture(tmp_path / "a.jpg")
    with serving_page([agent]) as url, browser_tab(stage.browser, url) as tab:
        tab.ask("What animal is this?", tmp_path / "a.jpg")
        tab.wait_until_idle()
        tab.plan.get_by_label("Run again with").select_option("image-to-text/two")
        expect(tab.requests.last).to_contain_text("image-to-text/two")
        tab.wait_until_idle()
        expect(tab.task(0)).to_contain_text("done")
    assert [call.candidate.id for call in backend.calls] == ["image-to-text/one", "image-to-text/two"]


def test_a_plan_is_changed_and_approved_before_it_runs(
    stage: Stage, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jarvis_agent.interfaces.ui import page

    drawn, show = list[Any](), page.show_proposal
    monkeypatch.setattr(page, "show_proposal", lambda *parts: (drawn.append(parts[1]), show(*parts)))
    tab.ask_first()
    tab.ask("What animal is this?", CAT, ASTRONAUT)
    proposal = tab.page.locator("#proposal")
    expect(proposal).to_contain_text("Run this plan?")
    expect(proposal.get_by_role("checkbox")).to_have_count(2)
    expect(tab.task(1)).to_contain_text("planned")
    assert stage.calls == []
    proposal.get_by_label("image", exact=True).nth(1).click()
    proposal.get_by_role("option", name="astronaut.jpg").click()
    proposal.get_by_role("checkbox", name="0 Image to text").uncheck()
    proposal.get_by_role("button", name="Run", exact=True).click()
    tab.wait_until_idle()
    expect(tab.plan.locator("button.task")).to_have_count(1)
    expect(tab.task(0)).to_contain_text("done")
    expect(proposal).to_be_hidden()
    expect(tab.pictures).to_have_count(1)
    calls = [(call.spec.name, call.inputs["image"].name) for call in stage.calls]
    assert calls == [("canny-control", "astronaut.jpg")]

    outline: Row = ("canny-control", [], {"image": "astronaut.jpg"})
    stage.script["plan"] = plan(outline, ("image-to-text", [0], {"image": "<resource>-0"}))
    tab.ask("What is in <b>the</b> outline?")
    expect(tab.requests.last).to_contain_text("What is in <b>the</b> outline?")
    reference = proposal.get_by_label("image", exact=True).nth(1)
    expect(reference).to_have_value("← 0 Canny control")
    reference.fill("<resource>-7")
    reference.press("Enter")
    proposal.get_by_role("button", name="Run", exact=True).click()
    expect(proposal).to_contain_text("task 1 (image-to-text): <resource>-7")
    expect(proposal.get_by_label("image", exact=True).nth(1)).to_have_value("<resource>-7")
    proposal.get_by_role("button", name="Do not run").click()
    expect(tab.chat).to_contain_text("The plan was rejected, so nothing was run.")
    expect(proposal).to_be_hidden()
    shown = [proposal for proposal in drawn if proposal is not None]
    assert len(shown) == 3, "a form that is drawn again loses a click"


def test_the_keyboard_alone_is_enough(stage: Stage, tab: Tab) -> None:
    tab.tab_to(tab.page.get_by_label("Upload a file"))
    tab.upload(CAT, press=lambda: tab.page.keyboard.press("Enter"))
    tab.tab_to(tab.box)
    tab.page.keyboard.type("What animal is this?")
    tab.page.keyboard.press("Enter")
    expect(tab.requests).to_have_count(1)
    tab.wait_until_idle()
    expect(tab.details).to_contain_text("fake/canny-control")
    tab.tab_to(tab.task(0))
    tab.page.keyboard.press("Enter")
    expect(tab.details).to_contain_text("fake/image-to-text")
    tab.tab_to(tab.task(1))
    tab.page.keyboard.press("Enter")
    expect(tab.details).to_contain_text("fake/canny-control")
    expect(tab.task(1)).to_have_attribute("aria-pressed", "true")


def test_in_a_narrow_window_nothing_is_outside_and_a_long_plan_can_be_approved(stage: Stage) -> None:
    with browser_tab(stage.browser, stage.url, viewport={"width": 360, "height": 740}) as tab:
        tab.ask("What animal is this?", CAT)
        tab.wait_until_idle()
        tab.task(1).click()
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width == 360
        outside = """() => [...document.querySelectorAll('#chat p, #chat img, #plan button, #plan dd, #box')]
            .filter(one => one.getBoundingClientRect().right > 361).map(one => one.outerHTML)"""
        assert tab.page.evaluate(outside) == []
        expect(tab.page.locator("#box")).to_be_in_viewport(ratio=1)

        stage.script["plan"] = plan(*[("canny-control", [], {"image": "cat.jpg", "colour": "red"})] * 8)
        tab.ask_first()
        tab.page.get_by_role("button", name="Toggle Sidebar").click()
        tab.ask("Make an outline eight times.")
        expect(tab.page.locator("#run-plan")).to_be_in_viewport(ratio=1)
        expect(tab.page.locator("#proposal")).to_contain_text("unknown arguments were left out")
        tab.page.set_viewport_size({"width": 1280, "height": 800})
        assert tab.page.evaluate(PAINTED_OVER_RUN) == []
        tab.page.locator("#run-plan").click()
        tab.wait_until_idle()
        expect(tab.pictures).to_have_count(9)


def test_visitors_do_not_see_the_files_of_others(stage: Stage, tab: Tab) -> None:
    tab.ask("What animal is this?", CAT)
    expect(tab.chat).to_contain_text(ANSWER)
    tab.wait_until_idle()
    made = next(stage.outputs.rglob("1-canny-control.png"))
    stage.calls.clear()
    with browser_tab(stage.browser, stage.url, apart=True) as other:
        for name in (made.name, str(made), "cat.jpg", "/etc/hostname"):
            stage.script["plan"] = plan_for(name)
            other.ask(f"What is in the file {Path(name).name}?")
            other.wait_until_idle()
        expect(other.pictures).to_have_count(0)
        assert stage.calls == []
        for path in (made, stage.outputs / "ui", "/etc/hostname"):
            assert other.page.request.get(f"{stage.url}gradio_api/file={path}").status == 403
        other.page.evaluate("sessionStorage.setItem('jarvis-chat', 'guessed')")
        other.reload()
        expect(other.page.get_by_text("What shall I do?")).to_be_visible()
        assert str(stage.outputs) not in other.page.content() + tab.page.content()


@pytest.mark.starter
def test_the_examples_run_with_the_starter_models(stage: Stage, tmp_path: Path) -> None:
    agent = JarvisAgent("none", settings=Settings(output_dir=tmp_path))
    with serving_page([agent]) as url, browser_tab(stage.browser, url) as tab:
        tab.chat.get_by_role("button", name="What animal is in this picture").click()
        expect(tab.pictures).to_have_count(1, timeout=240_000)
        tab.wait_until_idle()
        tab.open_menu()
        tab.page.get_by_role("button", name="New chat").click()
        tab.chat.get_by_role("button", name="Read the text in page.png").click()
        expect(tab.task(2)).to_contain_text("done", timeout=240_000)
        expect(tab.chat).to_contain_text("It was the best of times", ignore_case=True)


def test_language_and_colours_are_those_of_the_browser(stage: Stage) -> None:
    with browser_tab(stage.browser, stage.url, locale="zh-CN", color_scheme="dark") as tab:
        tab.open_menu()
        expect(tab.page.get_by_role("button", name="新对话")).to_be_visible()
        tab.ask("这是什么动物？", CAT)
        tab.wait_until_idle()
        expect(tab.chat).to_contain_text("任务：2 个中完成 2 个")
        expect(tab.task(0)).to_contain_text("完成")
        tab.task(0).click()
        expect(tab.details).to_contain_text("只有这个模型能做这件事；它在这台机器上")
        brightness = "() => Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g))"
        assert tab.page.evaluate(brightness) < 60
        # Black letters on a transparent ground are seen.
        grounds = "pictures => pictures.map(one => getComputedStyle(one).backgroundImage)"
        assert "none" not in (shown := tab.chat.locator(".message img").evaluate_all(grounds))
        assert shown
        tab.page.set_extra_http_headers({"accept-language": "en"})
        tab.reload()
        expect(tab.chat).to_contain_text("Tasks done: 2 of 2")
