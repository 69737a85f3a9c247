"""The models of a build: the float model, which all targets share, and the quantized models."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from etdev.config.tables.schemes import Pt2e
from etdev.errors import QuantizeError
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import StageClock
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedModel, LoadedModel
from etdev.pipeline.stages.calibration import CalibrationData
from etdev.pipeline.stages.export import export_model, signatures, unexported_model
from etdev.pipeline.stages.inputs import Signature, samples_at
from etdev.pipeline.stages.known_outputs import KnownOutputs, MadeOnDemand
from etdev.pipeline.stages.load.model import load_model
from etdev.pipeline.stages.quantize import quantize_exported, quantize_loaded, works_before_export


class Models:
    """The models of a build. Each model is loaded and exported when a target first needs it.

    Later targets use the same models, because no stage changes them.
    """

    def __init__(self, project: Project, user: UserCode) -> None:
        self._project, self._user = project, user
        self._loaded: LoadedModel | None = None
        self._exported: ExportedModel | None = None
        self._quantized: dict[str, ExportedModel] = {}
        self._samples_checked = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes from loading, for the report."""
        return self._loaded.notes if self._loaded else ()

    def load(self, clock: StageClock) -> LoadedModel:
        """Return the eager float model."""
        if self._loaded is None:
            with clock.stage("load"):
                self._loaded = load_model(self._project, self._user)
        return self._loaded

    def signatures(self, clock: StageClock) -> dict[str, Signature]:
        """Return the signature of each method."""
        if self._project.config.model.pt2 is None:
            return {name: Signature.of(name, method) for name, method in self._project.config.methods.items()}
        return signatures(self._project, self.load(clock))

    def check_samples(self) -> None:
        """Read the samples of each method with declared inputs, once and before the slow stages.

        Raises :class:`~etdev.errors.LoadError` if the method does not accept a sample.
        """
        if not self._samples_checked:
            for name, method in self._project.config.methods.items():
                if method.samples is not None and method.inputs is not None:
                    key = ("methods", name, "samples")
                    for _ in samples_at(self._project, self._user, method.samples, Signature.of(name, method), key):
                        pass
            self._samples_checked = True

    def prepare(self, target: str, clock: StageClock) -> tuple[ExportedModel, ExportedModel]:
        """Return the float model and the model to lower for a target.

        If the target is not quantized, return the float model twice.
        """
        loaded = self.load(clock)
        if self._exported is None:
            with clock.stage("export"):
                self._exported = export_model(self._project, loaded, self._user)
        name = self._project.config.targets[target].quantize
        if name is None:
            return self._exported, self._exported
        if name not in self._quantized:
            with clock.stage("quantize"):
                self._quantized[name] = self._quantize(loaded, self._exported, name)
        return self._exported, self._quantized[name]

    def prepare_unexported(
        self, target: str, outputs: Mapping[str, int], clock: StageClock, known: KnownOutputs
    ) -> tuple[ExportedModel, ExportedModel]:
        """Return the models of :meth:`prepare` without an export, for verifying a target with a reused object program.

        ``outputs`` is the number of outputs of each method. The quantized model is made only if verification needs
        outputs that are not in ``known``. A scheme that works on exported graphs then needs an export, unless
        another target has already made one.
        """
        name = self._project.config.targets[target].quantize
        if name is None or name in self._quantized or not known:
            return self._remade(target, outputs, clock)
        model = unexported_model(self._project, self.load(clock), outputs)
        scheme = self._project.config.quantize[name].scheme
        made = functools.cache(lambda: self._remade(target, outputs, clock)[1])
        methods, eager = MadeOnDemand(lambda: made().methods), MadeOnDemand(lambda: made().eager)
        return model, replace(model, methods=methods, eager=eager, scheme=scheme)

    def _remade(
        self, target: str, outputs: Mapping[str, int], clock: StageClock
    ) -> tuple[ExportedModel, ExportedModel]:
        name = self._project.config.targets[target].quantize
        if self._exported is not None and (name is None or name in self._quantized):
            return self.prepare(target, clock)
        loaded = self.load(clock)
        if name is None:
            model = unexported_model(self._project, loaded, outputs)
            return model, model
        scheme = self._project.config.quantize[name].scheme
        if not works_before_export(scheme):
            return self.prepare(target, clock)
        with clock.stage("quantize"):
            quantized = quantize_loaded(self._project, loaded, name)
        return (
            unexported_model(self._project, loaded, outputs),
            replace(unexported_model(self._project, quantized, outputs), scheme=scheme),
        )

    def _quantize(self, loaded: LoadedModel, exported: ExportedModel, name: str) -> ExportedModel:
        scheme = self._project.config.quantize[name].scheme
        if works_before_export(scheme):
            quantized = quantize_loaded(self._project, loaded, name)
            return replace(export_model(self._project, quantized, self._user), scheme=scheme)
        data = CalibrationData(self._project, self._user, name)
        result = quantize_exported(
            self._project, exported, name, self._user, lambda method: self._calibration(exported, name, method, data)
        )
        return replace(result, notes=(*result.notes, *data.notes()))

    def _calibration(self, exported: ExportedModel, name: str, method: str, data: CalibrationData) -> Iterator[Tensors]:
        """Return the calibration inputs of a method.

        If the config has no calibration inputs, a dynamic scheme gets the method's example inputs. Any other scheme
        raises an error. For a method without inputs, return one call without inputs, because observers need at least
        one call.
        """
        if not exported.signatures[method].inputs:
            return iter([exported.methods[method].example])
        found = data.read(exported.signatures[method])
        if found is not None:
            return found
        settings = self._project.config.quantize[name]
        if isinstance(settings, Pt2e) and settings.needs_calibration:
            raise QuantizeError(
                f"method {method!r} has no calibration data",
                where=self._project.where("quantize", name, "calibration"),
                hint="set calibration data for this method",
            )
        return iter([exported.methods[method].example])
