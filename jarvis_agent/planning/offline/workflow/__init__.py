"""Reading requests that describe a workflow over a kit of tools: `reader.read`."""
