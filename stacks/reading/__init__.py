"""How `stacks.load` reads a file: text to nodes, nodes to values, values to models, errors to places and words."""
