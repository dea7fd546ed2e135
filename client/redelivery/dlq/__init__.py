"""Dead letters: looked at, counted, put back, dropped, exported. `redelivery.dead_letters` is the way in."""
