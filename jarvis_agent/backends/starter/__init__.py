"""Backend of the starter models: small real models inside Python packages, and their readers."""

import os

# onnxruntime would tell Microsoft about this machine and its models. It reads this once, at its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
