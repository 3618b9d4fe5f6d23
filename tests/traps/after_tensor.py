"""The program makes a tensor first."""
import framework

framework.tensor()
framework.choose()
print(framework.tensor())
