"""What every engine computes with: parameters, gradients, mixing, random numbers, rows, and one step of one agent."""
