"""Evaluation of planning and model selection; the command line runs it as `jarvis eval`."""
