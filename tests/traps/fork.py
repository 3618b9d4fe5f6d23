"""A forked child inherits what its parent did to the driver: here nothing, since counting asks NVML."""
import multiprocessing

import framework


def work(queue):
    framework.choose()
    queue.put(framework.tensor())


if __name__ == "__main__":
    framework.device_count()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
