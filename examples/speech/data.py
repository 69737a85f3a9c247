"""Synthesized commands of two vowels, such as "ee-ah", as waveforms of half a second at 8 kHz.

No person spoke them. A voice is a sum of harmonics, whose strengths follow the resonances (formants) of a vocal tract.
Formants glide from the first vowel to the second. Pitch, vocal tract, tempo, loudness and noise are drawn at random.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations
from math import pi

import torch
from torch import Tensor

SEED, HELD_OUT_SEED = 9, 10
RATE = 8000
SAMPLES = 4096
"""``methods.forward.inputs`` of etdev.toml."""
VOWELS = {"ee": (270.0, 2290.0, 3010.0), "ah": (730.0, 1090.0, 2440.0), "oo": (300.0, 870.0, 2240.0)}
"""Average formants of men in hertz, as Peterson and Barney measured them in 1952."""
WIDTHS = (60.0, 90.0, 150.0)
"""Bandwidths of the formants in hertz."""
COMMANDS = tuple(permutations(VOWELS, 2))
HELD_OUT = 240


def commands(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random waveforms, (count, 4096) float32 in -1..1, and the numbers of their commands."""

    def drawn(low: float, high: float) -> Tensor:
        return torch.rand(count, 1, generator=generator) * (high - low) + low

    labels = torch.randint(len(COMMANDS), (count,), generator=generator)
    time = torch.arange(SAMPLES) / SAMPLES
    pitch = drawn(90, 240) * (1 + drawn(-0.2, 0.2) * time)
    tract = drawn(0.95, 1.2).unsqueeze(2)
    glide = torch.sigmoid((time - drawn(0.4, 0.6)) / drawn(0.02, 0.06))
    begin, length = drawn(0.02, 0.15), drawn(0.7, 0.82)
    loudness = torch.sigmoid((time - begin) / 0.015) * torch.sigmoid((begin + length - time) / 0.02)

    targets = torch.tensor([[VOWELS[vowel] for vowel in COMMANDS[label]] for label in labels])
    first, second = targets.unsqueeze(3).unbind(1)
    formants = tract * (first + (second - first) * glide.unsqueeze(1))
    phase = (2 * pi * pitch / RATE).cumsum(dim=1)
    voice = torch.zeros(count, SAMPLES)
    for harmonic in range(1, int(RATE / 2 / 90)):
        frequency = harmonic * pitch
        strength = (frequency < RATE / 2) / harmonic
        for formant, width in zip(formants.unbind(1), WIDTHS, strict=True):
            detuned = (frequency - formant) / (width * 3)
            strength = strength + (frequency < RATE / 2) / (1 + detuned**2) / len(WIDTHS)
        voice += strength * torch.sin(harmonic * phase)
    voice = voice * loudness
    voice = voice / voice.abs().amax(dim=1, keepdim=True) * drawn(0.2, 0.9)
    noise = torch.randn(count, SAMPLES, generator=generator) * voice.std(dim=1, keepdim=True)
    return (voice + noise * drawn(0.05, 0.5)).clamp(-1, 1), labels


@cache
def held_out() -> tuple[Tensor, Tensor]:
    """Return 240 commands that are not used for training."""
    return commands(HELD_OUT, torch.Generator().manual_seed(HELD_OUT_SEED))


def calibration() -> Iterator[tuple[Tensor]]:
    """Yield training waveforms, from which quantization learns the ranges of activations."""
    waveforms, _ = commands(24, torch.Generator().manual_seed(SEED))
    for waveform in waveforms.split(1):
        yield (waveform,)


def test_samples() -> Iterator[tuple[Tensor]]:
    """Yield one in 20 of the held-out waveforms."""
    for waveform in held_out()[0][::20].split(1):
        yield (waveform,)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out waveforms that ``run(waveform) -> [logits]`` classifies correctly."""
    waveforms, labels = held_out()
    found = torch.cat([run(waveform)[0] for waveform in waveforms.split(1)]).argmax(dim=1)
    return (found == labels).float().mean().item()
