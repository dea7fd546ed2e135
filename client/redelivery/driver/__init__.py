"""Drivers: they carry out the commands of an engine, for the synchronous and the asynchronous front end."""
