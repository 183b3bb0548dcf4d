"""`nats-transform` and `python -m nats_transform`: the command line.

The same name in a checkout and in a wheel, which holds `cli` as `nats_transform.cli`.
"""

from cli.main import main

if __name__ == "__main__":
    main()
