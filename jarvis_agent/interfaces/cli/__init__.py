"""The command line."""

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130
"""Exit codes."""
