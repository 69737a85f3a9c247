// EtdevReferenceBackend: a delegate whose blob is a nested program, which the host runs in the memory of its device.
#pragma once

namespace etdev {

// Registers the backend with ExecuTorch.
void register_reference_backend();

}  // namespace etdev
