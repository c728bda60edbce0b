"""vLLM's MooncakeConnector on CPUs.

Its worker asks for the current accelerator, and there is none.  Mooncake moves the
blocks over TCP.
"""

import torch

torch.accelerator.current_device_index = lambda: 0

# after that: it is imported with the worker

from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import (
    MooncakeConnector)


class HostMooncake(MooncakeConnector):
    pass
