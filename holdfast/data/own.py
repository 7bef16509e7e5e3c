"""The user's own data: arrays and tensors, torch and Hugging Face data sets, one array per client.

A folder of images is the source ``folder('path')``.
"""

from holdfast.data.own_arrays import from_arrays, from_clients
from holdfast.data.own_datasets import from_dataset, from_huggingface

__all__ = ["from_arrays", "from_clients", "from_dataset", "from_huggingface"]
