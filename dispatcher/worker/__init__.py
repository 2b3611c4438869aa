"""The worker: three owners (poller, engine, publisher) that say everything to each other in letters."""
