"""Local models on the nodes of a Ray cluster, with Ray Serve (extra "ray")."""
