"""What the end of a call means, when to call again, and whether a callee may be called at all."""
