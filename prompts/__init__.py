"""The prompts and demonstrations, as data. Read them with jarvis_agent.llm.prompts."""
