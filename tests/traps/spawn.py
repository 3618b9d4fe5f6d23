"""A spawned child is a new process: it reads the variable anew, whatever its parent has done."""
import multiprocessing

import framework


def work(queue):
    framework.choose()
    queue.put(framework.tensor())


if __name__ == "__main__":
    framework.is_available()
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
