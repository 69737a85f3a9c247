"""Write the components of a wheel as CycloneDX JSON: ``python -m release.sbom WHEEL [FILE]``."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name, parse_wheel_filename

from etdev.page.vendor import ECHARTS
from release.packages import Package, licence, packages

_LICENCES = LicenseFactory()


def sbom(wheel: Path) -> Bom:
    """Return the components of a wheel: itself, the library in it, and the packages that it needs.

    Packages of extras are optional. Versions are those of this environment.
    """
    bom = Bom()
    bom.metadata.component = own = _wheel(wheel)
    echarts = Component(
        name=ECHARTS.package,
        version=ECHARTS.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"npm-{ECHARTS.package}",
        purl=PackageURL("npm", name=ECHARTS.package, version=ECHARTS.version),
        licenses=[_LICENCES.make_from_string(ECHARTS.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=ECHARTS.sha256)],
    )
    components = {canonicalize_name(found.name): (found, _component(found)) for found in packages()}
    for component in (echarts, *(component for _, component in components.values())):
        bom.components.add(component)
    bom.register_dependency(own, [echarts, *(component for found, component in components.values() if found.direct)])
    for found, component in components.values():
        needs = [components[name][1] for name in found.requires if name in components]
        bom.register_dependency(component, needs)
    return bom


def _wheel(wheel: Path) -> Component:
    name, version, _, _ = parse_wheel_filename(wheel.name)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Component(
        name=name,
        version=str(version),
        type=ComponentType.APPLICATION,
        bom_ref="etdev",
        purl=PackageURL("pypi", name=name, version=str(version)),
        licenses=[_LICENCES.make_from_string(licence())],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )


def _component(found: Package) -> Component:
    version = found.version.partition("+")[0]
    licences = [_LICENCES.make_from_string(found.licence)] if found.licence else []
    return Component(
        name=found.name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pypi-{canonicalize_name(found.name)}",
        purl=PackageURL("pypi", name=canonicalize_name(found.name), version=version),
        licenses=licences,
        scope=ComponentScope.REQUIRED if found.needed_by == "etdev" else ComponentScope.OPTIONAL,
    )


def main(wheel: Path, place: Path) -> None:
    """Write the file."""
    place.write_text(JsonV1Dot6(sbom(wheel)).output_as_string(indent=2) + "\n", encoding="utf-8")
    print(f"wrote {place}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("file", type=Path, nargs="?", help="default: WHEEL.cdx.json")
    arguments = parser.parse_args()
    main(arguments.wheel, arguments.file or Path(f"{arguments.wheel}.cdx.json"))
