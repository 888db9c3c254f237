"""What langgraph.json names: the graphs of an agent configured by the environment, and the files they make.

"jarvis" runs each plan at once; "jarvis-approve" stops at an interrupt that shows the plan. `app` serves the
files of the runs at "/outputs/…", which clients open; these URLs cannot be guessed.

Both share one agent and so its loaded models. Requests are untrusted: they can read their attachments and
JARVIS_ALLOWED_DIRS, and no other file. For keys and owners see examples/agent_server.
"""

from fastapi import FastAPI
from fastapi.responses import FileResponse

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.agent.graph import build_graph
from jarvis_agent.interfaces.common.uploads_and_outputs import output_response

_agent = JarvisAgent()
_agent = _agent.copy(restricted_to=_agent.settings.allowed_dirs)
_directory = _agent.settings.output_dir.absolute()

graph = build_graph(_agent.stages, files_url="/outputs")
approving = build_graph(_agent.stages, approve=True, files_url="/outputs")
app = FastAPI()


@app.api_route("/outputs/{run}/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def output(run: str, name: str) -> FileResponse:
    """A file of a run."""
    return await output_response(_directory, run, name)
