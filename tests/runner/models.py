"""Models whose programs have what runners have to cope with, and the targets that are built of them."""

MODEL = """
    import torch
    from torch import nn
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(8, 8)
            self.register_buffer("seen", torch.full((8,), 3.0))
            self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

        def forward(self, x):
            return self.layer(x).relu().softmax(-1), x.topk(2)[0]

        def add(self, x):
            self.seen.add_(x)
            return self.seen * 1

        def read(self):
            return self.seen + 0.5

        def mixed(self, i, b, h):
            return torch.where(b, i, i * 2), h * 2, torch.logical_not(b), i[0] > 1

        def choose(self, p, x):
            return torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,)) * 2

        def pick(self, p, x):
            return torch.cond(p, lambda a: a + 1, lambda a: a * 3, (x,))

        def rows(self, xs):
            return torch_map(lambda x: x.tanh(), xs)

        def running(self, xs):
            carry, ys = scan(lambda carry, x: (carry + x, carry * x), torch.zeros(4), xs)
            return ys, carry

        def empty(self, x):
            nothing = x[:, 4:] + 1
            return nothing, torch.cat([nothing, x], 1)

        def fixed(self):
            return self.table

        def caller(self, x, y):
            return x + y, x * 2, x - y
"""

CONFIG = """
    version = 1
    [project]
    name = "many"
    [model]
    entry = "model:Net"
    share_state = true
    [constants]
    get_answer = 42
    get_scale = 0.1
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = ["n", 8] }]
    dims.n = { min = 1, max = 4 }
    [methods.add]
    inputs = [{ name = "x", dtype = "float32", shape = [8] }]
    [methods.read]
    inputs = []
    [methods.mixed]
    inputs = [
        { name = "i", dtype = "int64", shape = [3] },
        { name = "b", dtype = "bool", shape = [3] },
        { name = "h", dtype = "float16", shape = [2, 2] },
    ]
    [methods.choose]
    inputs = [{ name = "p", dtype = "bool", shape = [] }, { name = "x", dtype = "float32", shape = [2, 4] }]
    [methods.pick]
    inputs = [{ name = "p", dtype = "bool", shape = [] }, { name = "x", dtype = "float32", shape = [2, 4] }]
    [methods.rows]
    inputs = [{ name = "xs", dtype = "float32", shape = [3, 4] }]
    [methods.running]
    inputs = [{ name = "xs", dtype = "float32", shape = [3, 4] }]
    [methods.empty]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
    [methods.fixed]
    inputs = []
    [methods.caller]
    inputs = [{ name = "x", dtype = "float32", shape = [5] }, { name = "y", dtype = "float32", shape = [5] }]
    [targets.cpu]
    io.caller = { inputs = { x = "caller" }, outputs = { 0 = "caller", 2 = "caller" } }
    [targets.xnn]
    partitioners = [{ backend = "xnnpack" }]
"""

SMALL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x):
            return self.other(self.one(x).relu()).tanh()

    def calibration():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(2, 32, generator=generator),) for _ in range(3)]
"""

SMALL_CONFIG = """
    version = 1
    [project]
    name = "small-one"
    [model]
    entry = "model:Net"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [2, 32] }]
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = "model:calibration"
    [targets.portable]
    external_weights = "w.ptd"
    [targets.xnn]
    external_weights = "w.ptd"
    partitioners = [{ backend = "xnnpack" }]
    [targets.int8]
    quantize = "int8"
    verify = { atol = 1.0 }
"""
"""A config for :data:`SMALL`: weights in a file, for constants and for delegates, and the quantized kernels."""

BANKED_MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
            self.register_buffer("seen", torch.zeros(4, 64))

        def forward(self, x):
            self.seen.add_(x)
            for layer in self.layers:
                x = torch.tanh(layer(x)) + x
            return x + self.seen

        def peek(self, x):
            return torch.sigmoid(self.seen) * x

    def make():
        return Net().eval()
"""
"""A model whose two methods share state, which is in one bank with temporaries of both."""

BANKED = """
    version = 1
    [project]
    name = "banked"
    [model]
    entry = "model:make"
    share_state = true
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [4, 64] }]
    [methods.peek]
    inputs = [{ name = "x", dtype = "float32", shape = [4, 64] }]
    [targets.mcu.memory]
    banks = [
        { name = "dtcm", id = 2, size = "2KiB", alignment = 64 },
        { name = "sram", id = 1, size = "16KiB" },
    ]
    pin.state = "dtcm"
"""
