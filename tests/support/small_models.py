"""Small models for microcontrollers, each with samples, as a module of a project."""

MODELS = '''
    import torch
    from torch import nn

    class Cnn(nn.Module):
        """An image to ten classes."""
        shape = (1, 3, 32, 32)

        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
            self.last = nn.Linear(16, 10)

        def forward(self, x):
            return self.last(self.second(self.first(x)).mean((2, 3), keepdim=True).flatten(1))

    class Mobile(nn.Module):
        """Inverted residuals, as in MobileNet V2."""
        shape = (1, 3, 32, 32)

        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6())
            self.blocks = nn.ModuleList(
                nn.Sequential(
                    nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), nn.ReLU6(),
                    nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.ReLU6(),
                    nn.Conv2d(24, 8, 1), nn.BatchNorm2d(8),
                )
                for _ in range(2)
            )
            self.last = nn.Linear(8, 10)

        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = x + block(x)
            return self.last(x.mean((2, 3)))

    class Transformer(nn.Module):
        """One block with attention."""
        shape = (1, 16, 32)

        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(32), nn.LayerNorm(32)
            self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))
            self.wide = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x):
            y = self.before(x)
            q, k, v = (layer(y).reshape(1, 16, 2, 16).transpose(1, 2) for layer in (self.query, self.key, self.value))
            scores = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(1, 16, 32))
            return x + self.wide(self.between(x))

    class Keywords(nn.Module):
        """Frames of a spectrum to words, with separable convolutions."""
        shape = (1, 1, 49, 10)

        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(1, 16, (9, 3), stride=2, padding=(4, 1)), nn.BatchNorm2d(16), nn.ReLU())
            self.deep = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU())
            self.point = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.last = nn.Linear(16, 12)

        def forward(self, x):
            return self.last(self.point(self.deep(self.stem(x))).mean((2, 3)))

    class Autoencoder(nn.Module):
        """A spectrum through a narrow layer to itself."""
        shape = (1, 64)

        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU())
            self.up = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

        def forward(self, x):
            return self.up(self.down(x))

    class _Last:
        """Mixin: the model with channels last, as users write it for the kernels of Cortex-M."""

        def __init__(self):
            super().__init__()
            self.to(memory_format=torch.channels_last)

        def forward(self, x):
            return super().forward(x.contiguous(memory_format=torch.channels_last))

    class CnnLast(_Last, Cnn):
        pass

    class Pooled(Cnn):
        """With a maximum over windows."""

        def __init__(self):
            super().__init__()
            self.second.append(nn.MaxPool2d(2))

    def _samples(model):
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(model.shape, generator=generator),) for _ in range(3)]

    def cnn():
        return _samples(Cnn)

    def cnnlast():
        return _samples(Cnn)

    def pooled():
        return _samples(Cnn)

    def mobile():
        return _samples(Mobile)

    def transformer():
        return _samples(Transformer)

    def keywords():
        return _samples(Keywords)

    def autoencoder():
        return _samples(Autoencoder)
'''

SHAPES = {
    "Cnn": [1, 3, 32, 32],
    "CnnLast": [1, 3, 32, 32],
    "Pooled": [1, 3, 32, 32],
    "Mobile": [1, 3, 32, 32],
    "MobileLast": [1, 3, 32, 32],
    "Transformer": [1, 16, 32],
    "Keywords": [1, 1, 49, 10],
    "Autoencoder": [1, 64],
}


def config_of(model: str, scheme: str, target: str) -> str:
    """Return a config with the quantization ``[quantize.int8]`` and the target ``mcu``; both given as further lines."""
    samples = f'"models:{model.lower()}"'
    return "\n".join(
        [
            "version = 1",
            'project.name = "small"',
            f'model.entry = "models:{model}"',
            "[methods.forward]",
            f'inputs = [{{ name = "x", dtype = "float32", shape = {SHAPES[model]} }}]',
            f"samples = {samples}",
            "[quantize.int8]",
            scheme,
            f"calibration = {samples}",
            "[targets.mcu]",
            'quantize = "int8"',
            target,
        ]
    )
