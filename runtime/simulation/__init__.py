"""When jobs will start: the queue run forward with the code that decides, and what was forecast against what came."""
