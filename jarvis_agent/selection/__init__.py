"""The parts of model selection: hints in the request, filters and rank, pins, and the LLM's choice."""
