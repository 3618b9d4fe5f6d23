"""The program sets the variable after the import, which does not initialise CUDA by itself."""
import framework

framework.choose()
print(framework.tensor())
