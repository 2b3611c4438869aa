"""Requests one after another: a partition under one assignment, its lanes, and what each of them does next."""
