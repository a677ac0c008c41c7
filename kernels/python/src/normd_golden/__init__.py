"""The golden norm: what a normalisation must return, to the last bit, and which of two results is nearer to it.

    import normd_golden as golden

    y = golden.rms_norm(x, 4096, weight, eps=1e-6)                       # the nearest value of every element
    print(golden.check(my_y, golden.RMSNorm(eps=1e-6), x, weight, reference=torch_y))

In this process, without a server: README.md of kernels/python.
"""

from normd_golden._normalize import Result, normalize, parameter_shape
from normd_golden._exact import Value, exact
from normd_golden.functional import (
    batch_norm, group_norm, instance_norm, layer_norm, lp_norm, p_rms_norm, power_norm, rms_norm, scale_norm
)  # fmt: skip
from normd_golden._report import Against, Element, Report, check
from normd_golden.specs import (
    BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LpNorm, PowerNorm, PRMSNorm, RMSNorm, ScaleNorm, Spec
)  # fmt: skip
from normd_golden._variants import Fit, Variant

__version__ = "0.1.0"

__all__ = [
    "Against",
    "BatchNorm",
    "Element",
    "Fit",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "LpNorm",
    "PRMSNorm",
    "PowerNorm",
    "RMSNorm",
    "Report",
    "Result",
    "ScaleNorm",
    "Spec",
    "Value",
    "Variant",
    "batch_norm",
    "check",
    "exact",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "lp_norm",
    "normalize",
    "p_rms_norm",
    "parameter_shape",
    "power_norm",
    "rms_norm",
    "scale_norm",
]
