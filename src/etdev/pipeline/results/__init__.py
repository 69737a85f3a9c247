"""Results of builds and checks: the content of ``report.json``."""
