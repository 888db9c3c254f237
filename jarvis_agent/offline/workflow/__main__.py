"""Fit the classifier of clauses anew, after data/clauses.json has changed:

python -m jarvis_agent.offline.workflow
"""

import logging

from jarvis_agent.embeddings import load_embedder
from jarvis_agent.offline.workflow.fit import refit
from jarvis_agent.settings import Settings

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    share = refit(load_embedder(Settings()))
    logging.info("on templates held out: %.1f %% right", 100 * share)
