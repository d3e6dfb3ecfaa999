"""What a user asks for: one run, a series of several, all of the paper; by name or by value, on any engine."""
