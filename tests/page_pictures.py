"""Take the pictures of the web page in docs/images: python tests/page_pictures.py

The page is the real one, with the starter models and without a language model. Needs Chromium.
"""

import io
import tempfile
from pathlib import Path
from typing import Any

from browser import Tab, browser_tab, chromium, serving_page
from PIL import Image
from playwright.sync_api import expect

from jarvis_agent import JarvisAgent, Settings

ROOT = Path(__file__).parents[1]
IMAGES, CAT, PAGE = ROOT / "docs/images", ROOT / "examples/cat.jpg", ROOT / "examples/page.png"
REQUEST = (
    "Read the text in page.png aloud, then transcribe the recording. "
    "Also tell me what animal is in cat.jpg and make a canny edge image of it."
)
VAGUE = "Make cat.jpg a bit nicer: darker, smaller, and turn it."
WIDTH, HEIGHT = 1180, 760  # The menu is closed at this width.
SHOWN = (826, 532)
MAX_RUNNING = 4
FRAME_MS, LAST_MS = 1_300, 4_000


def picture_of(tab: Tab) -> Image.Image:
    """The window as it is."""
    return Image.open(io.BytesIO(tab.page.screenshot(animations="disabled"))).convert("RGB")


def frames_of_a_run(tab: Tab) -> list[Image.Image]:
    """The start, the request, the states of its plan, the answer, and the details of a picture."""
    tab.page.get_by_role("button", name="What animal is in this picture").wait_for()
    frames = [picture_of(tab)]
    tab.upload(PAGE, CAT, press=tab.page.get_by_label("Upload a file").click)
    tab.box.fill(REQUEST)
    frames.append(picture_of(tab))
    tab.box.press("Enter")
    running, states = list[Image.Image](), list[str]()
    expect(tab.task(4)).to_be_visible()
    while tab.page.locator("#box .stop-button").count():
        state = str(
            tab.plan.locator("button.task").evaluate_all("all => all.map(one => one.className).join()")
        )
        if state not in states:
            states.append(state)
            running.append(picture_of(tab))
        tab.page.wait_for_timeout(100)
    tab.wait_until_idle()
    expect(tab.pictures).to_have_count(1)
    tab.task(4).click()
    expect(tab.details.locator("img")).to_be_visible()
    tab.page.mouse.move(0, 0)
    tab.page.wait_for_timeout(1_000)  # It scrolls there.
    return [*frames, *running[:: -(-len(running) // MAX_RUNNING)], picture_of(tab)]


def main() -> None:
    """Write the pictures."""
    size: Any = {"viewport": {"width": WIDTH, "height": HEIGHT}}
    with (
        tempfile.TemporaryDirectory() as outputs,
        serving_page([JarvisAgent("none", settings=Settings(output_dir=Path(outputs)))]) as url,
        chromium() as browser,
    ):
        with browser_tab(browser, url, **size) as tab:
            first, *others = [frame.resize(SHOWN) for frame in frames_of_a_run(tab)]
        times = [FRAME_MS] * len(others) + [LAST_MS]
        first.save(
            IMAGES / "ui-run.webp", save_all=True, append_images=others, duration=times, quality=70, method=6
        )
        with browser_tab(browser, url, **size) as tab:
            tab.ask_first()
            tab.page.get_by_role("button", name="Toggle Sidebar").click()
            tab.ask(VAGUE, CAT)
            expect(tab.page.locator("#run-plan")).to_be_visible()
            tab.page.wait_for_timeout(1_000)  # The menu closes.
            picture_of(tab).save(IMAGES / "ui-approval.webp", quality=70)


if __name__ == "__main__":
    main()
