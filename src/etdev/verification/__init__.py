"""Stage *verify*: the checks. Each answers ``passed``, ``failed`` or ``not run: REASON``.

A check that did not run is never reported as passed.
"""
