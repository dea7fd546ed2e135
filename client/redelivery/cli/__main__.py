"""`python -m redelivery.cli` is `redelivery`."""

from redelivery.cli import main

if __name__ == "__main__":
    main()
