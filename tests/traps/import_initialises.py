"""The program sets the variable after its imports, one of which has asked the driver already."""
import library  # noqa: F401
import framework

framework.choose()
print(framework.tensor())
