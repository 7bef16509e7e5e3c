"""Settings of all tests: one thread, and examples that are the same in every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("holdfast", deadline=None, derandomize=True)
settings.load_profile("holdfast")
