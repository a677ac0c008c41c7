"""What all modules of normd.torch share: the client, and how they are copied, pickled and refused.

In the path: under layers.py and batch_norm.py.
"""

from __future__ import annotations

import copy
from typing import Any, Dict

from torch import Tensor

from normd.torch._autograd import outside_of_graphs


class Served:
    """Base, beside a class of torch.nn, of a module whose forward calls the service.

    The module is that class of torch.nn in everything but forward: constructor, parameters, buffers, keys of the
    state_dict and isinstance; its repr says `served`. `client` is the normd.Client that is called; None is the default
    one.
    """

    #: Attributes that the class of torch.nn does not have; class attributes are their defaults.
    SERVED: Dict[str, Any] = {"client": None}

    client: Any = None

    def __init__(self, *args: Any, client: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client = client

    @outside_of_graphs
    def forward(self, input: Tensor) -> Tensor:
        return self._serve(input)

    def _serve(self, input: Tensor) -> Tensor:
        """y, by calls of the service."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        # The one sign, where a model is printed, that this norm is not computed here.
        return f"{super().extra_repr()}, served"  # type: ignore[misc]

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        clone = type(self).__new__(type(self))
        memo[id(self)] = clone
        clone.__dict__.update(copy.deepcopy(self._without_service(), memo))
        clone.client = self.client  # shared: a client is a connection
        return clone

    def __copy__(self) -> Any:
        clone = type(self).__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def __getstate__(self) -> Dict[str, Any]:
        # A connection means nothing in another process: an unpickled module calls the default client.
        return self._without_service()

    def _without_service(self) -> Dict[str, Any]:
        """The module's attributes without those of the service."""
        return {name: value for name, value in self.__dict__.items() if name not in self.SERVED}

    def __prepare_scriptable__(self) -> Any:
        # Called by torch.jit.script for the module itself and for each module inside a model.
        raise TypeError(
            f"{type(self).__name__} of normd.torch calls a service, which TorchScript cannot: script the model after "
            "normd.torch.restore(model)"
        )
