"""What the workers of a server share: the process imports it from which they are forked.

Garbage collection would write to what is shared, and so copy it; what is there already is exempt from it.
"""

import gc
from contextlib import suppress

import jarvis_agent.interfaces.server.app  # noqa: F401
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.settings import load_settings
from jarvis_agent.planning.offline.network import load_network

with suppress(JarvisError):  # the workers meet it again, and report it
    load_network(load_settings(offline=True))
gc.freeze()
