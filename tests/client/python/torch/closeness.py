"""What equal means in these tests.

y of the service is within 1 ulp of the exact value (4 ulp in float64), the ulp taken at the largest of |y|, |weight|
and |bias|, all of which are below 4 here. PyTorch's value in float64 stands for the exact one: its own error, some
1e-15 times the condition of the sums, is far below an ulp of the other types, and in float64 the tolerance is PyTorch's.
"""

import torch

# An ulp of a number from 2 to 4; float64: PyTorch's own error.
TOLERANCE = {torch.float32: 2.0**-22, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6, torch.float64: 1e-13}
# Gradients are PyTorch's own, of the same function in another place; 16-bit types compute them in float32 and round.
GRADIENT_TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float64: 1e-12}


def widen(*tensors):
    """float64 copies, which require a gradient where the originals do."""
    return [None if one is None else one.detach().double().requires_grad_(one.requires_grad) for one in tensors]


def assert_near(actual, expected, tolerance):
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)
