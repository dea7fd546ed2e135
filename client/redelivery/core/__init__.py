"""The sans-IO core: events in, commands out. Nothing in it waits, reads a clock, or draws a random number."""
