"""Abstract domain of the proof: symbols for contents, states, and states at points where paths merge."""
