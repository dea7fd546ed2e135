"""Tools of a dead-letter queue: list, count, redrive, purge, export. `redelivery.dead_letters` returns them."""
