"""Backend ``vulkan``: ExecuTorch's delegate for GPUs with Vulkan, such as those of Android devices.

Lowering works on any machine. The programs run only in a runtime that is built with this backend. The wheel's runtime
lacks the backend. Inputs and outputs are in host memory, because the schema has no device type for Vulkan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from etdev.backends.base import BUILD_EXTRA, Availability, CompileSpecValue, SpecIssue, find_packages, no_compile_specs
from etdev.config.table import Table
from etdev.config.types import ByteSize, Many, Text

_STORAGE = {"buffer": "BUFFER", "texture-3d": "TEXTURE_3D", "texture-2d": "TEXTURE_2D"}
_LAYOUT = {
    "width": "TENSOR_WIDTH_PACKED",
    "height": "TENSOR_HEIGHT_PACKED",
    "channels": "TENSOR_CHANNELS_PACKED",
}


class VulkanOptions(Table):
    """Options of ``executorch.backends.vulkan``'s partitioner."""

    storage: Literal["buffer", "texture-3d", "texture-2d"] | None = Field(
        None, description="Storage of tensors on the GPU. Default: the delegate chooses for each tensor."
    )
    layout: Literal["width", "height", "channels"] | None = Field(
        None,
        description="Dimension that a texture packs in groups of four. Default: the delegate chooses for each tensor.",
    )
    small_textures: bool = Field(
        False,
        description="Leave out ops that need textures larger than 2048 in a dimension. All GPUs support smaller ones.",
    )
    buffer_limit: ByteSize | None = Field(
        None, description="Size of the largest buffer that the GPU supports. Default: 128 MiB."
    )
    force_fp16: bool = Field(False, description="Compute float32 in float16.")
    downcast_64_bit: bool = Field(True, description="Store 64-bit numbers as 32-bit numbers inside the delegate.")
    require_dynamic_shapes: bool = Field(False, description="Take only ops whose sizes may change at run time.")
    skip_bool_tensors: bool = Field(False, description="Leave out ops on bool tensors, which some GPUs do not support.")
    modules: Many[Text] = Field(
        (), description="Take only ops of modules whose class name contains one of these texts. Default: all modules."
    )
    without_modules: Many[Text] = Field(
        (), description="Leave out ops of modules whose class name contains one of these texts."
    )


class Vulkan:
    """Backend that lowers through ``VulkanPartitioner``."""

    name = "vulkan"
    summary = "Vulkan delegate for GPUs; the wheel's runtime cannot run it"
    device_types = ("cpu",)
    delegate_ids = ("VulkanBackend",)
    options = VulkanOptions
    compute_dtype = "float32"
    dynamic_shapes = True

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", remedy=BUILD_EXTRA)

    def partitioner(self, options: VulkanOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        return VulkanPartitioner(
            compile_options=_compile_options(options),
            nn_module_allowlist=list(options.modules) or None,
            nn_module_blocklist=list(options.without_modules) or None,
        )


def _compile_options(options: VulkanOptions) -> dict[str, Any]:
    """Return the options with the names that ExecuTorch's partitioner uses. That partitioner ignores unknown names."""
    from executorch.backends.vulkan.serialization.vulkan_graph_schema import VkMemoryLayout, VkStorageType

    found: dict[str, Any] = {
        "small_texture_limits": options.small_textures,
        "force_fp16": options.force_fp16,
        "downcast_64_bit": options.downcast_64_bit,
        "require_dynamic_shapes": options.require_dynamic_shapes,
        "skip_bool_tensors": options.skip_bool_tensors,
    }
    if options.storage is not None:
        found["storage_type_override"] = VkStorageType[_STORAGE[options.storage]]
    if options.layout is not None:
        found["memory_layout_override"] = VkMemoryLayout[_LAYOUT[options.layout]]
    if options.buffer_limit is not None:
        found["buffer_limit"] = options.buffer_limit
    return found


backend = Vulkan()
