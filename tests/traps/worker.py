"""A worker that takes the GPU of its rank, as torchrun's workers do."""
import os

import framework

print(framework.tensor(int(os.environ["LOCAL_RANK"])), flush=True)
