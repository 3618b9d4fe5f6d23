"""A library that asks the driver while it is being imported, as is_available() at module level does."""
import framework

HAS_GPU = framework.is_available()
