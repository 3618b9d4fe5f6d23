"""The program asks first whether there is a GPU: that initialises the driver, which reads the variable once."""
import framework

framework.is_available()
framework.choose()
print(framework.tensor())
