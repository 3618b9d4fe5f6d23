"""Hidden first, and tried: a failed cuInit is not final, and the driver's next one reads the variable again."""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import framework

framework.tensor()
framework.choose()
print(framework.tensor())
