"""The agent on an Agent Protocol server, for several owners.

    cd examples/agent_server; export AGENT_KEYS="ada=secret-1,bob=secret-2"
    pip install "langgraph-cli[inmem]" fastapi && langgraph dev

    # or aegra, with PostgreSQL and Python 3.12:
    export DATABASE_URL=postgresql://user:password@localhost/aegra PUBLIC_URL=http://127.0.0.1:2024
    pip install aegra-cli aegra-api greenlet && aegra serve --host 127.0.0.1 --port 2024

It was tried with `langgraph_sdk`, langgraph-api 0.16 and aegra 0.11, beside this package's extra "starter".
`AGENT_KEYS` are the owners' keys, which clients send as `X-Api-Key`. Each owner has threads, a graph and
files of their own. `PUBLIC_URL` is the address that clients use, for the URLs of files.
"""

import hashlib
import os

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from langgraph_sdk import Auth

from jarvis_agent import JarvisAgent
from jarvis_agent.agent.graph import build_graph
from jarvis_agent.interfaces.common.uploads_and_outputs import output_response

KEYS = dict(pair.split("=", 1)[::-1] for pair in os.environ["AGENT_KEYS"].split(","))
PUBLIC_URL = os.environ.get("PUBLIC_URL", "http://127.0.0.1:2024")

auth = Auth()
agent = JarvisAgent()
root = agent.settings.output_dir.absolute() / "owners"


def secret_of(key: str) -> str:
    """The name of an owner's directory, which cannot be guessed, so that URLs need no key."""
    return hashlib.sha256(f"files of {key}".encode()).hexdigest()


def make_graph(key: str):
    """The graph of an owner."""
    secret = secret_of(key)
    own = agent.copy(restricted_to=[], settings={"output_dir": root / secret})
    return build_graph(own.stages, files_url=f"{PUBLIC_URL}/outputs/{secret}")


GRAPHS = {owner: make_graph(key) for key, owner in KEYS.items()}


@auth.authenticate
async def authenticate(headers: dict) -> Auth.types.MinimalUserDict:
    """The owner of a key."""
    given = headers.get(b"x-api-key") or headers.get("x-api-key") or b""
    owner = KEYS.get(given.decode() if isinstance(given, bytes) else given)
    if owner is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="this needs a key: X-Api-Key")
    return {"identity": owner}


@auth.on
async def only_own(ctx: Auth.types.AuthContext, value: dict) -> dict:
    """What is made gets its owner, and nobody else sees it."""
    own = {"owner": ctx.user.identity}
    if value.get("metadata") is None:  # as aegra gives it; `langgraph dev` keeps the dict that it gave
        value["metadata"] = {}
    value["metadata"].update(own)
    return own


@auth.on.assistants.read
@auth.on.assistants.search
async def every_assistant(ctx: Auth.types.AuthContext, value: dict) -> None:
    """The assistants of the server are for all owners."""


async def graph(config: dict):
    """The graph of the owner who asks; without one, as when the server reads its schemas, the first."""
    user = config.get("configurable", {}).get("langgraph_auth_user") or {}
    owner = user.get("identity") if isinstance(user, dict) else user.identity
    return GRAPHS.get(owner) or next(iter(GRAPHS.values()))


app = FastAPI()


@app.get("/outputs/{secret}/{run}/{name}")
async def output(secret: str, run: str, name: str) -> FileResponse:
    """A file of a run. Browsers save what could run scripts (HTML, SVG), and do not open it."""
    if secret not in map(secret_of, KEYS):
        raise HTTPException(404)
    return await output_response(root / secret, run, name)
