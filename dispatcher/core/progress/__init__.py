"""How far a partition has come: what may be committed, what a commit says, and where a log does not go on."""
