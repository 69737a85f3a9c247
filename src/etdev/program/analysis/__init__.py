"""Data-flow analysis of programs: effects, flow, reaching writes, storage and lifetimes."""
