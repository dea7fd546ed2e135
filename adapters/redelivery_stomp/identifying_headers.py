"""Header lines that identify a message over its deliveries, and those that differ between two deliveries of it."""

__all__ = ["KNOWN_BY", "OF_DELIVERY"]

# Header lines with a new value for each delivery (x-acquired-count: RabbitMQ 4.3, quorum queues).
OF_DELIVERY = (
    b"message-id:",
    b"ack:",
    b"subscription:",
    b"redelivered:",
    b"x-delivery-count:",
    b"x-acquired-count:",
)
# Header lines that identify a message if the broker made its id.
KNOWN_BY = (b"message-id:", b"timestamp:", b"destination:")
