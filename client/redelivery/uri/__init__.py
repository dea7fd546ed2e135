"""Parser of connection URIs, table of their options, and readers of each group of options."""
