"""Stage *verify*: the rungs, each a question with the answers ``passed``, ``failed`` and ``not run: REASON``.

A rung that did not run is never reported as passed.
"""
