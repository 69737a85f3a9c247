"""The abstract domain of the proof: symbols for contents, states, and their merges."""
