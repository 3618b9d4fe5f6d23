"""The shell says one GPU, the program another, before anything asked the driver."""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAP_OTHER"]
import framework

print(framework.tensor())
