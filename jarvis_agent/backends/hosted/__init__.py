"""Models that others run: inference providers and endpoints, OpenAI-compatible servers, Gradio Spaces."""
