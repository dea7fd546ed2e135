"""Images of the brokers, and an engine to run them, for machines without access to an image registry.

python -m integration.images build artemis brokerj --base eclipse-temurin:17-jre
python -m integration.images run -- python -m pytest integration/test_containers.py
"""
