"""The page of `jarvis ui` on loopback, and headless Chromium to use it with.

with serving_page([agent]) as url, chromium() as browser, browser_tab(browser, url) as tab:
    tab.ask("What is this?", CAT)
    tab.wait_until_idle()
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as NothingHappenedError
from served import listening

from jarvis_agent import JarvisAgent
from jarvis_agent.core.settings import ServerSettings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_ARGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # WebGL without a GPU
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 60_000
"""The longest wait for anything, which a loaded machine may need."""


@contextmanager
def serving_page(agents: Sequence[JarvisAgent], **settings: Any) -> Iterator[str]:
    """The URL of the page of these agents, which are closed at the end."""
    from jarvis_agent.interfaces.ui.page import HEADERS, make_app  # it imports Gradio

    app = make_app(agents, ServerSettings(allowed_hosts=("127.0.0.1",), **settings))
    with listening(app, grace=1, headers=[*HEADERS.items()]) as url:
        yield f"{url}/"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; CHROMIUM must not be None."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A visitor's page, its errors, and the addresses outside of the server that it asked for."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def box(self) -> Locator:
        return self.page.locator("#box textarea")

    @property
    def chat(self) -> Locator:
        return self.page.locator("#chat")

    @property
    def plan(self) -> Locator:
        return self.page.locator("#plan")

    def task(self, number: int) -> Locator:
        """The box of a task of the newest plan."""
        return self.plan.locator("button.task").nth(number)

    @property
    def details(self) -> Locator:
        """The details that are shown, of one task at most."""
        return self.plan.locator(".about:visible")

    @property
    def requests(self) -> Locator:
        return self.chat.locator(".user-row:has(.md)")

    @property
    def pictures(self) -> Locator:
        """The pictures in answers."""
        return self.chat.locator(".bot-row img[src*='/file=']")

    def ask(self, request: str, *files: Path) -> None:
        """Send a request, and wait until it is in the chat."""
        earlier = self.requests.count()
        if files:
            self.upload(*files, press=self.page.get_by_label("Upload a file").click)
        self.box.fill(request)
        self.box.press("Enter")
        expect(self.requests).to_have_count(earlier + 1)

    def upload(self, *files: Path, press: Callable[[], None]) -> None:
        """Add files to the request. The button that is pressed works a moment after it has appeared."""
        for _ in range(20):
            try:
                with self.page.expect_file_chooser(timeout=WAIT_MS / 20) as chooser:
                    press()
                break
            except NothingHappenedError:
                continue
        chooser.value.set_files(files)
        expect(self.page.locator("#box .thumbnail-item")).to_have_count(len(files))

    def tab_to(self, wanted: Locator) -> None:
        """Press the tab key until an element has the focus."""
        for _ in range(40):
            if wanted.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the tab key does not reach {wanted}")

    def ask_first(self) -> None:
        """Set that plans are shown before they run."""
        self.open_menu()
        self.page.get_by_label("Ask me before running a plan").check()

    def open_menu(self) -> None:
        """Open the sidebar."""
        if self.page.locator("#menu:not(.open)").count():
            self.page.get_by_role("button", name="Toggle Sidebar").click()

    def reload(self) -> None:
        """Load the page again, and wait until it is drawn. The connections that this ends are no errors."""
        earlier = len(self.errors)
        self.page.reload()
        del self.errors[earlier:]
        expect(self.page.locator("#head h1")).to_be_visible()

    def wait_until_idle(self) -> None:
        expect(self.page.locator("#box .stop-button")).to_have_count(0)
        expect(self.page.locator("#box .submit-button")).to_be_visible()


@contextmanager
def browser_tab(browser: Browser, url: str, *, apart: bool = False, **options: Any) -> Iterator[Tab]:
    """A visitor with the page open; options are those of a browser context.

    Without options, visitors share a tab, one after the other. It keeps only the scripts of the page.
    A visitor beside another one is `apart`.
    """
    expect.set_options(timeout=WAIT_MS)
    is_shared = not (apart or options)
    context = browser.contexts[0] if is_shared and browser.contexts else None
    if context is None:
        given: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}, "locale": "en-US"}
        context = browser.new_context(**given | options)
        context.set_default_timeout(WAIT_MS)
        context.new_page()
    tab = Tab(context.pages[0], url)
    listeners: dict[Any, Callable[[Any], None]] = {
        "pageerror": lambda error: tab.errors.append(str(error)),
        "console": lambda said: (
            tab.errors.append(f"{said.text} {said.location}") if said.type == "error" else None
        ),
        "request": lambda sent: (
            None if sent.url.startswith((url, "data:", "blob:")) else tab.foreign.append(sent.url)
        ),
    }
    for event, listener in listeners.items():
        tab.page.on(event, listener)
    tab.page.goto(url)
    expect(tab.page.locator("#head h1")).to_be_visible()
    yield tab
    if is_shared:
        for event, listener in listeners.items():
            tab.page.remove_listener(event, listener)
        tab.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        context.clear_cookies()
        tab.page.goto("about:blank")
    else:
        context.close()
