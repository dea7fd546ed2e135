"""The engine under an adversarial broker: all schedules to a depth, random ones by seed; invariants at each step."""
