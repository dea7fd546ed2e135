# The compiled part of python-qpid-proton: cffi makes all of it at build time, so nothing of it has types.
from typing import Any

ffi: Any
lib: Any
