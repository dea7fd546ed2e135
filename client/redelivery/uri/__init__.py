"""Connection URIs: the parser, the table of options, and how each option is read."""
