"""What the integration tests have shown of each broker, version and protocol: written down by runs, drawn as a page."""
