"""One module or package per outside thing: it turns that thing's callbacks and exceptions into the core's nouns."""
