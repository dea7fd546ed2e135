"""When a message is redelivered: policies of each broker, and the map that chooses one by destination."""
