"""The agent for AG-UI clients such as CopilotKit: uvicorn --app-dir examples/agent_server ag_ui_app:app

It needs `pip install "ag-ui-langgraph[fastapi]" uvicorn`. Graph and files are those of langgraph.json.
"""

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver

from jarvis_agent.interfaces.server.langgraph_app import app as files
from jarvis_agent.interfaces.server.langgraph_app import graph

graph.checkpointer = InMemorySaver()
app = FastAPI()
add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="jarvis", graph=graph), "/agent")
app.mount("/", files)
