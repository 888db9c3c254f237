"""Evaluation of planning; the command line runs it as `jarvis eval`."""
