"""The worker: owners (poller, engine, publisher, restorer, reporter) that say everything to each other in letters."""
