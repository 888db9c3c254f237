"""Adapters over the agent: the command line and the server."""
