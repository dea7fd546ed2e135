"""The sans-IO core: values in, values out. Nothing here waits, reads a clock, or draws a random number."""
