"""The variable is set in the shell, and the program leaves it alone."""
import framework

print(framework.tensor())
