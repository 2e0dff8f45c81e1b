"""Few of many values: how many travel, in which frames, and what waits. The recipes choose which."""
