"""Drivers: what carries out the commands of an engine, shared by the synchronous and the asynchronous front end."""
