"""Stage *verify*: the checks, each a question with the answers ``passed``, ``failed`` and ``not run: REASON``.

A check that did not run is never reported as passed.
"""
