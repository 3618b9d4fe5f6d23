"""A notebook: the first cell asks whether there is a GPU, the second sets the variable, the third uses it."""
import os
import sys

try:
    import ipykernel  # noqa: F401
    from jupyter_client.manager import start_new_kernel
except ImportError as error:
    sys.exit(f"absent: {error.name}")

CELLS = (
    f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import framework; framework.is_available();",
    "framework.choose()",
    "print(framework.tensor())",
)


def show(message):
    if message["msg_type"] == "stream":
        print(message["content"]["text"], end="")
    elif message["msg_type"] == "error":
        print(message["content"]["evalue"])


manager, client = start_new_kernel(kernel_name="python3", startup_timeout=60)
try:
    for cell in CELLS:
        client.execute_interactive(cell, timeout=60, output_hook=show)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
