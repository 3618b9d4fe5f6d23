"""The program assigns another GPU before anything asked the driver: the assignment wins over the shell."""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAP_OTHER"]
import seen

print(seen.gpus())
