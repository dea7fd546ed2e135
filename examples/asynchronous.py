"""Consumers on an event loop: `async def` handlers, four at a time, and a consumer to pull from."""

import argparse
import asyncio

import redelivery
from redelivery import Message


async def main(uri: str) -> None:
    """Handle requests four at a time, answer each, and pull the answers."""
    async with redelivery.connect_async(uri) as connection:

        @connection.listen("requests", workers=4)
        async def handle(message: Message) -> None:
            await connection.send("answers", message.text.upper(), correlation_id=message.message_id)

        for body in ("one", "two", "three"):
            await connection.send("requests", body)
        await connection.start()
        consumer = await connection.consumer("answers")
        for _ in range(3):
            message = await consumer.receive(timeout=10)
            if message is not None:
                async with message:  # leaving it accepts; an exception goes to the policy
                    print(message.text)
        print(await connection.drain())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="memory://asynchronous")
    asyncio.run(main(parser.parse_args().url))
