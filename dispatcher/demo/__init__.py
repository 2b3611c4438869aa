"""`dispatcher demo`: the main job on real input, from nothing to a table whose numbers add up.

`load` plans what is sent and when, `awkward` the requests that cannot succeed, `tally` adds up what came back (these three are pure);
`scene` has the children and their configuration, `mock` what is otherwise where no broker can be run; `drive` sends and reads; `show` is
what a person sees; `play` is the whole evening.
"""
