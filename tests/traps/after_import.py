"""The program assigns the right GPU, but an import has asked the driver already: the assignment is ignored."""
import os

right = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
import helper  # noqa: F401

if right is not None:
    os.environ["CUDA_VISIBLE_DEVICES"] = right
import seen

print(seen.gpus())
