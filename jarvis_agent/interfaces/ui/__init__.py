"""The agent as a web page: `jarvis ui`, or a Gradio application.

    gr.mount_gradio_app(app, create_ui(agent), path="/ui", **page_options(agent))   # in FastAPI

Each visitor has chats and files of their own, which are kept for `ServerSettings.retention`. The page shows
no path of this machine and no key. `run_ui` asks for a login if there are API keys. Elsewhere, Gradio's
`auth=` can. Needs the extra "ui".
"""

from __future__ import annotations

import webbrowser
from functools import partial
from typing import TYPE_CHECKING, Any

from jarvis_agent.interfaces.common.listen import check_extra, listen

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import FastAPI

    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.core.settings import ServerSettings

_check_extra = partial(check_extra, "the web page", "ui", "gradio")


def create_ui(agent: JarvisAgent, *others: JarvisAgent) -> gr.Blocks:
    """The page of an agent; with others, visitors choose one of them by its language model."""
    _check_extra()
    from jarvis_agent.core.settings import ServerSettings
    from jarvis_agent.interfaces.ui.page import Page

    return Page([agent, *others], ServerSettings()).blocks


def page_options(agent: JarvisAgent) -> dict[str, Any]:
    """The options with which the page of an agent is launched or mounted: its style, texts and limits."""
    _check_extra()
    from jarvis_agent.interfaces.ui import page

    return page.page_options(agent)


def run_ui(
    agent: JarvisAgent,
    *others: JarvisAgent,
    host: str = "127.0.0.1",
    port: int = 7860,
    insecure: bool = False,
    open_browser: bool = False,
) -> None:
    """Serve the page until interrupted. On a loopback address, requests for or from other hosts are refused.

    With API keys (`ServerSettings.api_keys`), visitors log in with one of them as password.

    Args:
        agent, others: as for `create_ui`.
        host, port: where to listen.
        insecure: serve without API keys on an address that other machines reach.
        open_browser: show the page in the browser of this machine.

    Raises:
        ConfigError: other machines reach the address, and there are no API keys.
    """
    _check_extra()
    from jarvis_agent.interfaces.ui.page import HEADERS, make_app

    def make(settings: ServerSettings) -> FastAPI:
        app = make_app([agent, *others], settings)
        if open_browser:
            webbrowser.open(f"http://{host}:{port}/")
        return app

    listen(make, host, port, insecure=insecure, access_log=False, headers=[*HEADERS.items()])
