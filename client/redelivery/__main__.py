"""`python -m redelivery`: the command `redelivery`."""

from redelivery.cli import main

if __name__ == "__main__":
    main()
