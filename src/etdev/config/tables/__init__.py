"""Tables of the config that :mod:`etdev.config.models` puts together."""
