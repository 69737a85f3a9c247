"""Licences of the packages that etdev needs, and the list of components (SBOM) of a wheel."""
