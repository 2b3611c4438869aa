"""What operators ask and want: lanes, positions, where a request stands, replays. Facts in, plans and rows out."""
