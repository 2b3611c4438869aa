"""The pure part: no clock, socket, thread, random source or client library. Facts and `now` come in, decisions go out."""
