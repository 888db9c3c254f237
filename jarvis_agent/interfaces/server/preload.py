"""What the workers of a server share: the process imports it from which they are forked.

Garbage collection would write to what is shared, and so copy it; what is there already is exempt from it.
"""

import gc
import logging

import jarvis_agent.interfaces.server.app  # noqa: F401
from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.settings import load_settings
from jarvis_agent.planning.offline.network import load_network

try:
    load_network(load_settings(offline=True))
except Exception as error:
    # A worker that plans with it meets the error again, and reports it.
    logging.getLogger(__name__).debug("the planner's network is not shared: %s", describe_error(error))
gc.freeze()
