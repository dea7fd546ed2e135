"""Dead-lettering: routes of poison messages, strategies that name dead-letter queues, and redrive of dead letters."""
