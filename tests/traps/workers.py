"""torchrun starts one worker, which takes the GPU of its rank. Without PyTorch, what torchrun does is done here."""
import os
import subprocess
import sys

worker = os.path.join(os.path.dirname(__file__), "worker.py")
if os.environ.get("TRAP_FRAMEWORK") == "torch":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", worker]
else:
    command = [sys.executable, worker]
out = subprocess.run(command, env=dict(os.environ, LOCAL_RANK="0"), capture_output=True, text=True)
print(out.stdout, end="")
