"""A worker whose membership has a name (`group.instance.id`), which the product never gives: two of them are one member to Kafka.

Run as `python -m tests.e2e.namesake NAME CONFIG`.
"""

from __future__ import annotations

import sys

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.clients import GroupProtocol, Properties
from dispatcher.cli import main

if __name__ == "__main__":
    of_protocol = clients._group_properties

    def named(protocol: GroupProtocol) -> Properties:
        """Give what the product sets, and the name."""
        return of_protocol(protocol) | {"group.instance.id": sys.argv[1]}

    clients._group_properties = named
    sys.exit(main(["--config", sys.argv[2], "worker"]))
