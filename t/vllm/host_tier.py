"""A host tier for vLLM on CPUs: the worker that its OffloadingConnector does not
have there.

vLLM has its own for GPUs only.  Here it copies blocks from memory to memory.  Look-up,
eviction, events (medium CPU) and metrics are vLLM's.  With this folder in PYTHONPATH:

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "HostTier",
            "spec_module_path": "host_tier", "cpu_bytes_to_use": 50331648,
            "block_size": 32}}'
"""

import ctypes
import time

import numpy as np
import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.gpu_worker import compute_sub_block_ptrs
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class Worker(OffloadingWorker):
    """Copies at once, so a job has ended when it is submitted."""

    def __init__(self, kv_caches, per_chunk, chunks):
        self.per_chunk = per_chunk
        self.groups = kv_caches.group_data_refs
        self.ended = []
        self.device = [t.tensor.view(torch.int8).view((-1, t.page_size_bytes))
                       for t in kv_caches.tensors]
        self.host = [torch.zeros((chunks, t.page_size_bytes * per_chunk),
                                 dtype=torch.int8) for t in kv_caches.tensors]

    def copy(self, job, device, host, store):
        begun = time.monotonic()
        size = block = chunk = 0

        for refs, count, first in zip(self.groups, device.group_sizes,
                                      device.block_indices):
            if not count:
                continue

            # the first block may be in the middle of a chunk

            skip = first % self.per_chunk
            chunks = -(-(count + skip) // self.per_chunk)
            blocks = device.block_ids[block:block + count]
            places = host.block_ids[chunk:chunk + chunks]
            block += count
            chunk += chunks

            for ref in refs:
                a = np.empty(count, dtype=np.uint64)
                b = np.empty(count, dtype=np.uint64)

                compute_sub_block_ptrs(blocks, 1, a, self.device[ref.tensor_idx])
                compute_sub_block_ptrs(places, self.per_chunk, b,
                                       self.host[ref.tensor_idx], skip_count=skip)

                for x, y in zip(a.tolist(), b.tolist()):
                    ctypes.memmove(*((y, x) if store else (x, y)),
                                   ref.page_size_bytes)

                size += count * ref.page_size_bytes

        self.ended.append(TransferResult(
            job_id=job, success=True, transfer_size=size,
            transfer_time=time.monotonic() - begun))

        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        ended, self.ended = self.ended, []
        return ended

    def wait(self, job_ids):
        pass


class HostTier(CPUOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            self._worker = Worker(kv_caches, self.blocks_per_chunk,
                                  self.num_chunks)

        return self._worker
