"""Records of the topics that only workers write: what is parked, tried, finished, wanted and reported; and what they fold to."""
