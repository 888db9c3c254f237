"""The parts of model selection: sources, filters, ranking, pins, and the LLM's choice."""
