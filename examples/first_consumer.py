"""The first consumer: one of three orders fails, is redelivered, and ends in the dead-letter queue."""

import argparse

import redelivery

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", default="memory://shop?jms.redeliveryPolicy.maximumRedeliveries=1")

with redelivery.connect(parser.parse_args().url) as connection:

    @connection.listen("orders")
    def handle(message: redelivery.Message) -> None:
        """Handle an order, whose body is its number."""
        print(message.text, "delivery", message.delivery_count)
        int(message.text)

    for body in ("42", "forty-two", "43"):
        connection.send("orders", body)
    print(connection.run(until_idle=2))
