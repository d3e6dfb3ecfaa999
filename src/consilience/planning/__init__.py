"""What can be known before a run: is a plan stable, which step sizes suit a problem, what does the theory expect."""
