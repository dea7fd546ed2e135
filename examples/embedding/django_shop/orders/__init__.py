"""A Django application with one command."""
