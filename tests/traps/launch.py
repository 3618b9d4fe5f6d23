"""A launcher that sets the variable anew for its worker, as `accelerate launch --gpu_ids` does."""
import os
import subprocess
import sys

worker = os.path.join(os.path.dirname(__file__), "worker.py")
other = os.environ["TRAP_OTHER"]
environment = dict(os.environ, LOCAL_RANK="0")
if os.environ.get("TRAP_FRAMEWORK") == "torch":
    command = [sys.executable, "-m", "accelerate.commands.launch", "--gpu_ids", other, "--num_processes", "1", worker]
else:
    command = [sys.executable, worker]
    environment["CUDA_VISIBLE_DEVICES"] = other
out = subprocess.run(command, env=environment, capture_output=True, text=True)
print(out.stdout.strip().splitlines()[-1] if out.stdout.strip() else "absent: accelerate" if "No module" in out.stderr else "no GPU")
