"""What `demo` and `dev` stand on: child processes that end with the command, whatever ends it, and a configuration of their own.

`child` starts and stops one; `watch` ends them where the command could not, since it was killed; `configuration` is the file that they
get; `typed` is how a person would type our commands.
"""
