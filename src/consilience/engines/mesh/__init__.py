"""The engine `mesh`: agents spread over the devices of one host or many, by JAX's own distributed runtime."""
