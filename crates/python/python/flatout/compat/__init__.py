"""The names and arguments of other programs and packages, over Flatout's engine."""
