"""Test doubles that are not shipped: servers on this machine for tests with real clients."""
