"""An application of Django that has one command."""
