"""Generator of the parts of pages that are made from the code: options, commands, exceptions, capabilities, API.

`python -m docs._generate --write` writes them between their marks; without `--write` the names of pages that would
change are printed. It does not build the site: that is Sphinx (`docs/conf.py`).
"""
