"""Hidden first, then shown: a failed cuInit is not final, and the next one reads the variable again."""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import seen

seen.init()
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAP_OTHER"]
print(seen.gpus())
