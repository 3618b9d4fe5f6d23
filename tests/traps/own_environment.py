"""A launcher gives its child a variable of its own."""
import os
import subprocess
import sys

child = os.path.join(os.path.dirname(__file__), "shell.py")
environment = dict(os.environ, CUDA_VISIBLE_DEVICES=os.environ["TRAP_OTHER"])
print(subprocess.run([sys.executable, child], env=environment, capture_output=True, text=True).stdout, end="")
