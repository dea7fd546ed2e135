"""A policy for each destination, in the URI only: the program does not choose between them."""

import argparse

import redelivery

PATTERNS = (
    "jms.redeliveryPolicyMap.>.maximumRedeliveries=1"
    "&jms.redeliveryPolicyMap.>.initialRedeliveryDelay=100"
    "&jms.redeliveryPolicyMap.payments.>.maximumRedeliveries=3"
    "&jms.redeliveryPolicyMap.payments.>.initialRedeliveryDelay=50"
    "&jms.redeliveryPolicyMap.payments.>.useExponentialBackOff=true"
    "&jms.redeliveryPolicyMap.payments.>.backOffMultiplier=2"
    "&jms.redeliveryPolicyMap.payments.cash.maximumRedeliveries=0"
)
DESTINATIONS = ("payments.card", "payments.cash", "letters")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", default=f"memory://destinations?{PATTERNS}")
settings = redelivery.parse_uri(parser.parse_args().url)

for destination in DESTINATIONS:
    policy = settings.policies.policy_for(destination)
    print(
        destination, settings.policies.pattern_for(destination), policy.delays_ms(policy.maximum_redeliveries)
    )


def fail(message: redelivery.Message) -> None:
    """Fail, to show the policy's delays."""
    raise RuntimeError(f"delivery {message.delivery_count}")


with redelivery.connect(parser.parse_args().url) as connection:
    for destination in DESTINATIONS:
        connection.listen(destination, fail)
        connection.send(destination, "hello")
    print(connection.run(until_idle=2))
