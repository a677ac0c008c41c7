"""The methods as functions, with the names and arguments of torch.nn.functional: each returns the nearest y.

Keywords beside torch's: `residual`, `residual_scale`, `residual_rounding`, and those of the method's spec (`eps_mode`,
`cast_order`, `weight_offset`, `layout`, `axes`, ...). `normalize` has the other outputs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Sequence, Type, Union

from normd_golden import specs
from normd_golden._normalize import OF_CALL, OF_STATE, normalize
from normd_golden.specs import Shape, Spec


def _call(kind: Type[Spec], attributes: Dict[str, Any], x: Any, weight: Any, bias: Any, options: Dict[str, Any]) -> Any:
    of_call = {name: options.pop(name) for name in OF_CALL if name in options}
    known = {field.name for field in dataclasses.fields(kind)}
    for name in options:
        if name not in known:
            raise TypeError(f"{name} is no argument of {kind.method}; {', '.join(sorted(known))} are possible")
    given = {name: attributes.pop(name) for name in OF_STATE if name in attributes}
    return normalize(kind(**attributes, **options), x, weight, bias, **given, **of_call).y


def layer_norm(
    x: Any,
    normalized_shape: Optional[Shape] = None,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    **options: Any,
) -> Any:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes `normalized_shape`, or `axes`."""
    return _call(specs.LayerNorm, {"normalized_shape": normalized_shape, "eps": eps}, x, weight, bias, options)


def rms_norm(
    x: Any, normalized_shape: Optional[Shape] = None, weight: Any = None, eps: Optional[float] = None, **options: Any
) -> Any:
    """y = x / sqrt(mean(x^2) + eps) * weight over the trailing axes `normalized_shape`, `axes`, or the last axis.

    eps None, as in torch: 2^-23, for float64 2^-52. `bias` may be given, too.
    """
    bias = options.pop("bias", None)
    return _call(specs.RMSNorm, {"normalized_shape": normalized_shape, "eps": eps}, x, weight, bias, options)


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, **options: Any) -> Any:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels."""
    return _call(specs.GroupNorm, {"num_groups": num_groups, "eps": eps}, x, weight, bias, options)


def instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    eps: float = 1e-5,
    **options: Any,
) -> Any:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel, over the spatial axes.

    use_input_stats=False uses the given running statistics, as batch_norm does.
    """
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps, **options)
    return _call(specs.InstanceNorm, {"eps": eps}, x, weight, bias, options)


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    **options: Any,
) -> Any:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel.

    training=False uses the given running statistics, training=True those of the batch; nothing is moved.
    """
    attributes = {"eps": eps, "running_mean": running_mean, "running_var": running_var, "training": training}
    return _call(specs.BatchNorm, attributes, x, weight, bias, options)


def p_rms_norm(
    x: Any,
    p: Optional[float] = None,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-6,
    *,
    k: Optional[int] = None,
    **options: Any,
) -> Any:
    """y = x / sqrt(mean of the first k x^2 + eps) * weight + bias over the d elements of the last axis."""
    return _call(specs.PRMSNorm, {"p": p, "k": k, "eps": eps}, x, weight, bias, options)


def scale_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **options: Any) -> Any:
    """y = x / (|x| + eps) * weight + bias over the last axis, |x| the L2 norm; weight and bias are one number each."""
    return _call(specs.ScaleNorm, {"eps": eps}, x, weight, bias, options)


def lp_norm(
    x: Any, p: float = 2.0, dim: Union[int, Sequence[int], None] = 1, eps: float = 1e-12, **options: Any
) -> Any:
    """y = x / max(|x|_p, eps) over `dim`: torch.nn.functional.normalize. math.inf divides by the largest |x|."""
    return _call(specs.LpNorm, {"p": p, "dim": dim, "eps": eps}, x, None, None, options)


def power_norm(
    x: Any,
    running_phi: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    *,
    num_groups: int = 1,
    **options: Any,
) -> Any:
    """x over the root mean square of its group, over sqrt(phi + eps), * weight + bias."""
    attributes = {"num_groups": num_groups, "eps": eps, "running_var": running_phi, "training": training}
    return _call(specs.PowerNorm, attributes, x, weight, bias, options)
