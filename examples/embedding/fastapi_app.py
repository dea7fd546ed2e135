"""A web application that sends in requests, and consumes at the same time: `uvicorn fastapi_app:app`."""

from __future__ import annotations

import os

from fastapi import FastAPI, HTTPException

import redelivery
from redelivery import health

# A request fails after 5 s without a broker; the default of 30 s is for programs that can wait.
connection = redelivery.connect_async(os.environ["REDELIVERY_URL"], send_timeout=5)
handled: list[str] = []


@connection.listen("orders", workers=4)
async def handle(message: redelivery.Message) -> None:
    """Handle one order."""
    handled.append(message.text)


# Connects in the background, drains for up to 25 s at the end: give a pod 40 s.
app = FastAPI(lifespan=connection.lifespan(drain_timeout=25))
app.mount("/health", health.asgi(connection))


@app.post("/orders/{item}", status_code=202)
async def order(item: str) -> dict[str, str]:
    """Send one order."""
    try:
        return {"id": await connection.send("orders", item)}
    except redelivery.TransportError as error:
        # The text says whether the message may have been sent.
        raise HTTPException(503, str(error)) from None


@app.get("/handled")
async def count() -> list[str]:
    """Return the orders that this process has handled."""
    return handled
