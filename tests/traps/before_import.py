"""The program sets the variable before anything else."""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAP_RIGHT"]
import framework

print(framework.tensor())
