"""Compute the vectors of the phrases anew, after data/wordings.json has changed:

python -m jarvis_agent.offline
"""

from jarvis_agent.embeddings import load_embedder
from jarvis_agent.offline.wordings import store_vectors
from jarvis_agent.settings import Settings

if __name__ == "__main__":
    store_vectors(load_embedder(Settings()))
