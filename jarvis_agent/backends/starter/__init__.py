"""Backend of the starter models: small real models inside Python packages, and their readers."""
