"""Fit the classifier of clauses anew, after data/clauses.json has changed:

python -m jarvis_agent.planning.offline.workflow
"""

import logging

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.settings import Settings
from jarvis_agent.evaluation.synthetic import try_out
from jarvis_agent.planning.offline.workflow.fit import refit

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    embedder = load_embedder(Settings())
    share, partial = refit(embedder)
    node, edge = try_out(partial, embedder)
    logging.info("templates held out: %.1f %% of the clauses right", 100 * share)
    logging.info("made-up requests of these: node F1 %.1f, edge F1 %.1f", 100 * node, 100 * edge)
