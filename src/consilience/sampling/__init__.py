"""What a user asks for: one run, a study of several, all of the paper; by name or by value, on any engine."""
