"""What travels between people and workers: requests, replies, dead letters; their headers, their schemas, and what makes one up."""
