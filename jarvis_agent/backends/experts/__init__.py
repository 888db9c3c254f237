"""Local models in another process, behind HTTP: the server of `jarvis experts`."""
