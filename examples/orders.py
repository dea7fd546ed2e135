"""Orders: a policy for each kind of destination, and invalid orders dead-lettered at once."""

import argparse

import redelivery
from redelivery import Message, Poison, RedeliveryPolicy, RedeliveryPolicyMap

HOUR = 3600
patient = RedeliveryPolicy(  # 1 h, 2 h, 4 h … 24 h: more than a week, for goods that may still come
    maximum_redeliveries=12, initial_redelivery_delay=HOUR, use_exponential_back_off=True, back_off_multiplier=2,
    maximum_redelivery_delay=24 * HOUR,
)  # fmt: skip
quick = RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=0.2, redelivery_delay=0.2)
policies = RedeliveryPolicyMap({"orders.vip": patient}, default=quick)
stock = {"bolt": 10, "nut": 0}


def handle(message: Message) -> None:
    """Take goods from the stock; goods that are missing now may arrive later."""
    try:
        order = message.json()
        item, count = order["item"], int(order["count"])
    except (ValueError, LookupError, TypeError) as error:
        raise Poison(f"not an order: {error!r}") from error
    if stock.get(item, 0) < count:
        raise LookupError(f"{count} {item} wanted, {stock.get(item, 0)} in stock")
    stock[item] -= count
    print(f"{message.destination}: {count} {item}, delivery {message.delivery_count}")


def main(uri: str) -> None:
    """Send three orders, and handle all of them."""
    with redelivery.connect(uri, policies=policies) as connection:
        connection.listen("orders.*", handle)
        for body in ('{"item": "bolt", "count": 2}', '{"item": "nut", "count": 1}', "two bolts, please"):
            connection.send("orders.web", body)
        print(connection.run(until_idle=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="memory://orders")
    main(parser.parse_args().url)
