"""Something deletes the variable: every GPU is visible."""
import os

os.environ.pop("CUDA_VISIBLE_DEVICES", None)
import seen

print(seen.gpus())
