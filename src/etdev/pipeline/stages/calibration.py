"""Calibration data of a quantization scheme, checked while it is read."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.config.tables.schemes import Pt2e
from etdev.errors import QuantizeError
from etdev.pipeline.project import Project
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.inputs import Signature, samples_at


class CalibrationData:
    """The data that calibrates one scheme of the config.

    Observers derive the scale of each value from its range in this data. So an infinite value or a NaN is an error. A
    note reports each input whose values are all equal. Dynamic quantization accepts all values, because it computes
    scales at run time.
    """

    def __init__(self, project: Project, user: UserCode, scheme: str) -> None:
        self._project, self._user, self._scheme = project, user, scheme
        self._key: tuple[str, ...] = ("quantize", scheme, "calibration")
        settings = project.config.quantize[scheme]
        self._observed = isinstance(settings, Pt2e) and settings.needs_calibration
        self._ranges: dict[tuple[str, str], tuple[float, float]] = {}

    def read(self, signature: Signature) -> Iterator[Tensors] | None:
        """Return the data for a method; None if the config has none for it.

        Raises :class:`~etdev.errors.QuantizeError` if the user's code fails, or the method or the observers cannot use
        the data.
        """
        settings = self._project.config.quantize[self._scheme]
        given = settings.calibration if isinstance(settings, Pt2e) else None
        key = self._key
        if isinstance(given, dict):
            given, key = given.get(signature.method), (*key, signature.method)
        return None if given is None else self._checked(given, signature, key)

    def _checked(self, entry: str, signature: Signature, key: tuple[str, ...]) -> Iterator[Tensors]:
        samples = samples_at(self._project, self._user, entry, signature, key, QuantizeError)
        for index, sample in enumerate(samples):
            for item, value in zip(signature.inputs, sample, strict=True):
                if not self._observed or not value.is_floating_point() or not value.numel():
                    continue
                if count := int((~value.isfinite()).sum()):
                    raise QuantizeError(
                        f"{entry!r} returns inputs that cannot calibrate method {signature.method!r}: sample {index}: "
                        f"{count:,} of {value.numel():,} values of input {item.name!r} are infinite or NaN",
                        where=self._project.where(*key),
                        hint=f"repair {item.name!r} in the data, or leave such samples out; in a mask, use a large "
                        "finite number instead",
                    )
                low, high = self._ranges.get((signature.method, item.name), (float("inf"), float("-inf")))
                now = min(low, float(value.min())), max(high, float(value.max()))
                self._ranges[signature.method, item.name] = now
            yield sample

    def notes(self) -> tuple[str, ...]:
        """Return a note on each float input whose values were all equal in the data read so far."""
        return tuple(
            f"the calibration data of input {name!r} of method {method!r} has one value only, {low:g}: values that are "
            f"computed from it get wrong ranges; check the function at {self._project.where(*self._key)}"
            for (method, name), (low, high) in self._ranges.items()
            if low == high
        )
