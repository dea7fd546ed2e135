"""Results of the integration tests for each broker, version and protocol: runs record them, a page shows them."""
