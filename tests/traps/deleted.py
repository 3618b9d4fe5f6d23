"""Something deletes the variable: the first GPU is taken."""
import os

os.environ.pop("CUDA_VISIBLE_DEVICES", None)
import framework

print(framework.tensor())
