"""Importing the framework again does not bring the driver back to its beginning."""
import sys

import framework

framework.is_available()
framework.choose()
for name in [name for name in sys.modules if name in ("framework", "torch") or name.startswith("torch.")]:
    del sys.modules[name]
first = framework
try:
    import framework
except Exception:  # PyTorch cannot be imported twice
    framework = first
print(framework.tensor())
