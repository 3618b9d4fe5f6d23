"""The shell shows one GPU, and the program asks for it by the machine's number: inside, it is number 0."""
import os

import framework

print(framework.tensor(int(os.environ["TRAP_RIGHT"] or "1")))
