"""The benchmark: what is measured, in which environment and process, how it is kept, and how it is shown."""
