"""What jarvis_agent.graph is made of: steps that are done once, and the session that takes them."""
