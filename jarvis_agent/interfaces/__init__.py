"""Adapters over agent and models: command line, server, expert server, MCP and web page."""
