"""Compute the vectors of the phrases anew, after data/wordings.json has changed:

python -m jarvis_agent.planning.offline
"""

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.offline.wordings import store_vectors

if __name__ == "__main__":
    store_vectors(load_embedder(Settings()))
